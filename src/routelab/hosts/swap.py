"""Give a module another behaviour in place, and take it back exactly.

The object stays the same, only its class changes to a subclass of its own. So every hook that transformers, DDP or a
user put on it stays, ``isinstance`` still holds (transformers records router logits by it), its parameters keep their
identity and names, and no copy of the original lives on as a child.

Reversals are ``partial`` objects over module-level functions, never closures: a deep copy of the model then copies them
together with the modules they act on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from torch import nn


def specialise(
    module: nn.Module, behaviour: type, children: Mapping[str, nn.Module], attributes: Mapping[str, Any]
) -> Callable[[], None]:
    """Mix ``behaviour`` into the class of ``module``, add ``children`` and ``attributes``; return the reversal."""
    original = type(module)
    module.__class__ = subclass(behaviour, original)  # type: ignore[arg-type]  # mypy takes classes for unhashable
    for name, child in children.items():
        module.add_module(name, child)
    for name, value in attributes.items():
        setattr(module, name, value)

    return partial(_restore, module, original, (*children, *attributes))


@cache
def subclass(behaviour: type, original: type) -> type:
    """Return the class that mixes ``behaviour`` into ``original``, one per pair: compiled code is kept by type."""
    return type(f"{behaviour.__name__}{original.__name__}", (behaviour, original), {})


def replace(parent: nn.Module, name: str, module: nn.Module) -> Callable[[], None]:
    """Put ``module`` in place of the child ``name`` of ``parent``; return the reversal."""
    undo = partial(setattr, parent, name, getattr(parent, name))
    setattr(parent, name, module)
    return undo


def shadow(instance: nn.Module, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Let ``function`` answer for the method ``name`` of this one instance; return the reversal."""
    before = vars(instance).get(name)
    setattr(instance, name, function)
    return partial(delattr, instance, name) if before is None else partial(setattr, instance, name, before)


def _restore(module: nn.Module, original: type, added: tuple[str, ...]) -> None:
    for name in added:
        delattr(module, name)
    module.__class__ = original
