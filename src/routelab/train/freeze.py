"""Which tensors train, which must not move, and the proof that they did not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from routelab.errors import TrainingError
from routelab.methods.attachment import attached
from routelab.train.randomness import random_states, restore_random_states

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What Trainer, TRL and accelerate leave on the instance of a model they trained.
_INSTANCE_MARKS = ("forward", "_original_forward", "_is_accelerate_prepared", "model_tags", "hf_device_map")


def trainable_parameters(model: PreTrainedModel) -> dict[str, nn.Parameter]:
    """Return the parameters of all attached methods, by their name in the model, in the model's order.

    Raises:
        TrainingError: no method is attached, or a method trains a tensor that is not a parameter of the model.
    """
    methods = attached(model)
    if not methods:
        raise TrainingError("nothing to train: no method is attached to this model; call routelab.attach first")
    wanted = {
        id(parameter): f"{method.name}:{name}" for method in methods for name, parameter in method.named_parameters()
    }
    found = {name: parameter for name, parameter in model.named_parameters() if id(parameter) in wanted}
    strangers = wanted.keys() - {id(parameter) for parameter in found.values()}
    if strangers:
        names = ", ".join(sorted(wanted[key] for key in strangers))
        raise TrainingError(f"not parameters of the model, so they would not train: {names}")
    if not found:
        raise TrainingError(f"nothing to train: {', '.join(method.name for method in methods)} has no parameters")
    return found


def frozen_digests(model: PreTrainedModel, trainable: Mapping[str, nn.Parameter]) -> dict[str, str]:
    """Return a SHA-256 of the bytes of every parameter and saved buffer that does not train."""
    moving = {id(parameter) for parameter in trainable.values()}
    frozen = {
        name: tensor
        for name, tensor in model.state_dict(keep_vars=True).items()
        if isinstance(tensor, Tensor) and id(tensor) not in moving
    }
    with ThreadPoolExecutor(min(8, torch.get_num_threads())) as pool:  # hashing lets go of the interpreter lock
        return dict(zip(frozen, pool.map(tensor_digest, frozen.values()), strict=True))


def tensor_digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes in row-major order."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
    return hashlib.sha256(flat.numpy().data).hexdigest()


def combined_digest(digests: Mapping[str, str]) -> str:
    """Return one hash over named hashes, whatever their order."""
    return hashlib.sha256("\n".join(f"{name} {digests[name]}" for name in sorted(digests)).encode()).hexdigest()


def require_unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise ``TrainingError`` naming the frozen tensors that are not bit-identical, or came or went."""
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        raise TrainingError(
            f"{len(changed)} frozen tensors are not what they were before training: {', '.join(changed[:5])}"
            f"{' ...' if len(changed) > 5 else ''}"
        )


@contextmanager
def only_trainable(model: PreTrainedModel, trainable: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Let exactly ``trainable`` require gradients; give the flags back, and drop the gradients, afterwards."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    moving = {id(parameter) for parameter in trainable.values()}
    for parameter, _ in flags:
        parameter.requires_grad_(id(parameter) in moving)
    try:
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
            parameter.grad = None


@contextmanager
def undisturbed(model: PreTrainedModel) -> Iterator[None]:
    """Give back everything else that training changes around the weights.

    That is: ``model.forward`` (TRL patches a fused head into it), the configs (TRL sets the auxiliary loss, Trainer
    the special tokens), train and eval modes, gradient checkpointing and its hooks on the embeddings, and the random
    states of torch, numpy and Python, so that one training does not change the next.
    """
    marks = {name: vars(model)[name] for name in _INSTANCE_MARKS if name in vars(model)}
    modes = [(module, module.training) for module in model.modules()]
    checkpointing = [
        (module, vars(module).get("gradient_checkpointing"), vars(module).get("_gradient_checkpointing_func"))
        for module in model.modules()
        if hasattr(module, "gradient_checkpointing")
    ]
    had_input_hooks = bool(getattr(model, "_require_grads_hooks", None))
    configs: list[tuple[Any, dict[str, Any]]] = [
        (config, dict(vars(config)))
        for config in (model.config, model.config.get_text_config(), model.generation_config)
        if config is not None
    ]
    states = random_states()
    try:
        yield
    finally:
        for name in _INSTANCE_MARKS:
            vars(model).pop(name, None)
        vars(model).update(marks)
        for module, mode in modes:
            module.training = mode
        for module, enabled, function in checkpointing:
            for name, value in (("gradient_checkpointing", enabled), ("_gradient_checkpointing_func", function)):
                vars(module).pop(name, None)
                if value is not None:
                    vars(module)[name] = value
        if not had_input_hooks:
            model.disable_input_require_grads()
        for config, values in configs:
            vars(config).clear()
            vars(config).update(values)
        restore_random_states(states)
