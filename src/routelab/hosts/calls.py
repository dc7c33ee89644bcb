"""See the arguments of a forward call by name, however they were passed."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from torch import nn


def call_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``module(*args, **kwargs)`` by name.

    The class's own ``forward`` names them: a wrapper that a trainer puts on the instance takes ``*args, **kwargs``.
    """
    if not args:
        return dict(kwargs)
    names = _parameters(type(module))  # type: ignore[arg-type]  # mypy takes classes for unhashable
    return {**dict(zip(names, args, strict=False)), **kwargs}


@cache
def _parameters(kind: type[nn.Module]) -> tuple[str, ...]:
    """Return the parameters of ``forward``; reading a signature takes longer than a small layer."""
    return tuple(inspect.signature(kind.forward).parameters)[1:]
