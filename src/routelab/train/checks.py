"""Refusals before the first step, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from routelab import processes
from routelab.errors import HostError, TrainingError
from routelab.hosts.locate import FAMILIES, locate
from routelab.hosts.routing import require_router_gradient
from routelab.methods.attachment import attached
from routelab.train.config import TrainConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PROBE = 6


def check_place(model: PreTrainedModel, config: TrainConfig) -> None:
    """Refuse machines and precisions on which a run would not be the planned one.

    Raises:
        TrainingError: several GPUs for one process, weights on the meta device, or autocast over a host that is not
            float32.
    """
    spread = hasattr(model, "hf_device_map")
    if processes.count() > 1 and spread:
        raise TrainingError("a host that a device_map spreads over GPUs cannot be trained by several processes")
    if model.device.type == "cuda" and torch.cuda.device_count() > 1 and not spread and processes.count() == 1:
        raise TrainingError(
            f"{torch.cuda.device_count()} GPUs are visible and one process uses one: start it with torchrun "
            "--nproc-per-node N, set CUDA_VISIBLE_DEVICES, or load the host with a device_map"
        )
    if any(parameter.device.type == "meta" for parameter in model.parameters()):
        raise TrainingError("the model has no weights: some parameters are on the meta device")
    if config.dtype == "bfloat16" and any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        raise TrainingError("dtype 'bfloat16' runs a float32 host under autocast; this host is not float32: use 'host'")


def check_router_gradient(model: PreTrainedModel) -> None:
    """Refuse a host whose routers get no gradient: top-1 with renormalised top-k probabilities.

    A method with a loss of its own refuses by itself, where that loss leaves a router without a gradient.

    Raises:
        TrainingError: the host is of that kind.
    """
    if model.config.model_type in FAMILIES and not any(method.has_own_loss for method in attached(model)):
        try:
            require_router_gradient(locate(model))
        except HostError as error:
            raise TrainingError(str(error)) from error


def check_packing(model: PreTrainedModel) -> None:
    """Refuse packing unless packed documents cannot see each other in this very model.

    Families with linear attention are refused by name. For the rest the model is asked: three documents go through it
    in one row, and the gradient of the outputs of the second in the inputs of the other two must be exactly zero.

    Raises:
        TrainingError: documents of one row see each other.
    """
    family = FAMILIES.get(model.config.model_type)
    if family is not None and not family.packing:
        raise TrainingError(
            f"packing is refused on {model.config.model_type!r}: its linear-attention layers carry state from one "
            "packed document into the next; set packing to false"
        )
    leak = packing_leak(model)
    if leak > 0:
        raise TrainingError(
            f"packing is refused on this {model.config.model_type!r} model: packed documents see each other (gradient "
            f"{leak:.2g} between two of them) under attention {model.config._attn_implementation!r}; set packing to "
            "false, or load the host with attn_implementation='sdpa'"
        )


def packing_leak(model: PreTrainedModel) -> float:
    """Return the largest gradient of the second of three packed documents in the inputs of the others.

    Softmax gives a masked pair a probability of exactly zero, so isolation shows as an exact zero in any precision.
    """
    embedded: list[Tensor] = []

    def watch(module: nn.Module, args: tuple[object, ...], output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    was_training = model.training
    neutral = {name: value for method in attached(model) for name, value in method.neutral_arguments(1).items()}
    handle = model.get_input_embeddings().register_forward_hook(watch)
    ids = torch.arange(3 * _PROBE, device=model.device)[None] % model.config.get_text_config().vocab_size
    positions = torch.arange(_PROBE, device=model.device).repeat(3)[None]
    try:
        with torch.enable_grad():
            output = model.eval()(input_ids=ids, position_ids=positions, use_cache=False, **neutral)
            second = output.logits[:, _PROBE : 2 * _PROBE]
            gradient = torch.autograd.grad((second.float() ** 2).sum(), embedded[0])[0]
    finally:
        handle.remove()
        model.train(was_training)
    outside = torch.cat((gradient[:, :_PROBE], gradient[:, 2 * _PROBE :]), dim=1)
    return float(outside.abs().max())


def check_gradients(trainable: Mapping[str, nn.Parameter]) -> None:
    """Refuse to go on when, after a backward pass, a trainable tensor has no gradient or none has any.

    Raises:
        TrainingError: the loss does not depend on a tensor that was to be trained.
    """
    without = [name for name, parameter in trainable.items() if parameter.grad is None]
    if without:
        raise TrainingError(f"the loss does not depend on {len(without)} trainable tensors: {', '.join(without[:5])}")
    if not any(parameter.grad.any() for parameter in trainable.values() if parameter.grad is not None):
        raise TrainingError("the gradient of every trainable tensor is exactly zero: nothing would be learned")
