"""See the arguments of a forward call by name, however they were passed."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn


def call_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``module(*args, **kwargs)`` by name.

    The class's own ``forward`` names them: a wrapper that a trainer puts on the instance takes ``*args, **kwargs``.
    """
    names = list(inspect.signature(type(module).forward).parameters)[1:]
    return {**dict(zip(names, args, strict=False)), **kwargs}
