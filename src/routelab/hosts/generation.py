"""Let ``generate`` carry one more argument to every forward call, expanded with the rows like all the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from routelab.hosts.swap import shadow

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PREPARE = "prepare_inputs_for_generation"


def carry_argument(model: PreTrainedModel, name: str) -> Callable[[], None]:
    """Let ``model.generate(..., name=tensor)`` hand the tensor to every forward call; return the reversal.

    transformers accepts what the signature of ``prepare_inputs_for_generation`` names, expands every tensor for beams
    and returned sequences, and passes it on, in chunked prefill and to assistants too.
    """
    return shadow(model, _PREPARE, _preparing(model, name, partial(_with_argument, type(model), model, name)))


def ignore_argument(model: PreTrainedModel, name: str) -> Callable[[], None]:
    """Let ``model.generate`` accept the argument and drop it: for an assistant that has no use for it."""
    return shadow(model, _PREPARE, _preparing(model, name, partial(_without_argument, type(model), model, name)))


def _preparing(model: PreTrainedModel, name: str, function: partial[dict[str, Any]]) -> partial[dict[str, Any]]:
    signature = inspect.signature(getattr(type(model), _PREPARE))
    parameters = list(signature.parameters.values())[1:]
    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
    at = next((i for i, each in enumerate(parameters) if each.kind is each.VAR_KEYWORD), len(parameters))
    function.__signature__ = signature.replace(parameters=[*parameters[:at], added, *parameters[at:]])  # type: ignore[attr-defined]
    return function


def _with_argument(kind: type, model: PreTrainedModel, name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    value: Tensor | None = kwargs.pop(name, None)
    inputs: dict[str, Any] = getattr(kind, _PREPARE)(model, *args, **kwargs)
    return inputs if value is None else {**inputs, name: value}


def _without_argument(kind: type, model: PreTrainedModel, name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    kwargs.pop(name, None)
    inputs: dict[str, Any] = getattr(kind, _PREPARE)(model, *args, **kwargs)
    return inputs
