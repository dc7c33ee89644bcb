"""Attach methods to a model, list them, and take them off again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from routelab.errors import ConfigError, ConflictError, HostError, MatchError
from routelab.hosts.aux_loss import guard_aux_loss
from routelab.hosts.locate import Host
from routelab.hosts.packing import guard_packing
from routelab.methods.base import Method
from routelab.methods.registry import method_class

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Model = TypeVar("Model", bound="PreTrainedModel")

logger = logging.getLogger("routelab")
_STATE = "_routelab"


@dataclass
class _Attachment:
    """What Routelab keeps on a model: its methods, and what the model was before the first of them."""

    host: Host
    trainable_before: list[tuple[nn.Parameter, bool]]
    remove_guards: tuple[Callable[[], None], ...]
    methods: list[Method] = field(default_factory=list)


def attach(model: Model, config: Any, *, tokenizer: Any = None) -> Model:
    """Put one routing method on a model, in place, and return the model.

    From then on exactly the parameters of the attached methods require gradients; :func:`detach` restores the flags.
    What was matched is logged on the ``routelab`` logger and is ``attached(model)[-1].summary()``.

    Args:
        model: a transformers causal language model of a supported family.
        config: the method's configuration, for example ``AARConfig(layers="9-15", window=40)``.
        tokenizer: for methods that read text.

    Raises:
        ConfigError: the method reads text and there is no tokenizer.
        HostError: unknown or unsupported family, or a host this method cannot work on.
        LayerError: the configuration names layers that do not exist or cannot be used.
        ConflictError: an attached method already claims one of the same parts.
        MatchError: the method matched nothing.
    """
    kind = method_class(config)
    state: _Attachment | None = getattr(model, _STATE, None)
    host = kind.locate(model)
    if kind.reads_text and tokenizer is None:
        raise ConfigError(f"{kind.name!r} decides on the text of prompts: attach(model, config, tokenizer=tokenizer)")
    method = kind(host, config, tokenizer) if kind.reads_text else kind(host, config)
    for other in [] if state is None else state.methods:
        common = sorted(method.claims & other.claims)
        if common:
            raise ConflictError(
                f"{method.name!r} cannot join {other.name!r} on this model: both claim {', '.join(common[:3])}"
                f"{' and more' if len(common) > 3 else ''}; detach first"
            )
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        method.place()
    except BaseException:
        method.remove()
        raise
    summary = method.summary()
    if not summary.modules or (method.trains and not summary.trainable_parameters):
        method.remove()
        raise MatchError(f"{method.name!r} matched nothing in this {host.model_type!r} host")
    if state is None:
        guards = [guard_packing(host), *([guard_aux_loss(host)] if host.routers else [])]
        state = _Attachment(host, flags, tuple(guards))
        setattr(model, _STATE, state)
    state.methods.append(method)
    trainable = {id(parameter) for each in state.methods for parameter in each.parameters()}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trainable)
    logger.info("attached %s", summary)
    return model


def attached(model: PreTrainedModel) -> list[Method]:
    """Return the methods on a model, in the order they were attached."""
    state: _Attachment | None = getattr(model, _STATE, None)
    return [] if state is None else list(state.methods)


def attached_host(model: PreTrainedModel) -> Host:
    """Return the located host of a model that has a method attached.

    Raises:
        HostError: nothing is attached.
    """
    state: _Attachment | None = getattr(model, _STATE, None)
    if state is None:
        raise HostError("no routing method is attached to this model; call routelab.attach first")
    return state.host


def added_arguments(model: PreTrainedModel) -> frozenset[str]:
    """Return the names of the arguments that calls of a model take because of its methods (``Method.arguments``)."""
    return frozenset(name for method in attached(model) for name in method.arguments)


def reads_text(model: PreTrainedModel) -> bool:
    """Whether an attached method decides on the text of whole prompts, so that they must run in one forward."""
    return any(method.reads_text for method in attached(model))


def task_names(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the names of the tasks that ``task_ids`` counts, where calls of a model take it; else none."""
    return next((method.tasks for method in attached(model) if "task_ids" in method.arguments), ())


def detach(model: Model) -> Model:
    """Take every method off a model and return it: its own modules, weights, flags and bit-identical logits are back.

    Raises:
        HostError: nothing is attached, or training has changed tensors of the host that nobody kept.
    """
    attached_host(model)
    state: _Attachment = getattr(model, _STATE)
    for method in state.methods:
        method.require_removable()
    for method in reversed(state.methods):
        method.remove()
    for remove in state.remove_guards:
        remove()
    for parameter, trainable in state.trainable_before:
        parameter.requires_grad_(trainable)
    delattr(model, _STATE)
    return model
