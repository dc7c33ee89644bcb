"""Give a module another behaviour in place, and take it back exactly.

The object stays the same, only its class changes to a subclass of its own. So every hook that transformers, DDP or a
user put on it stays, ``isinstance`` still holds (transformers records router logits by it), its parameters keep their
identity and names, and no copy of the original lives on as a child.

Reversals are ``partial`` objects over module-level functions, never closures: a deep copy of the model then copies them
together with the modules they act on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn


def specialise(
    module: nn.Module, behaviour: type, children: Mapping[str, nn.Module], attributes: Mapping[str, Any]
) -> Callable[[], None]:
    """Mix ``behaviour`` into the class of ``module``, add ``children`` and ``attributes``; return the reversal."""
    original = type(module)
    module.__class__ = type(f"{behaviour.__name__}{original.__name__}", (behaviour, original), {})
    for name, child in children.items():
        module.add_module(name, child)
    for name, value in attributes.items():
        setattr(module, name, value)

    return partial(_restore, module, original, (*children, *attributes))


def _restore(module: nn.Module, original: type, added: tuple[str, ...]) -> None:
    for name in added:
        delattr(module, name)
    module.__class__ = original
