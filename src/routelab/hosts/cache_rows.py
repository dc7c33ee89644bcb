"""A fact about every row of a key-value cache, which follows the rows wherever the cache moves them.

What was decided for a sequence at its first token has to be known at every later one. The cache is the one thing that
goes with a sequence from call to call, so the fact lives on it. Beam search, batch expansion and the removal of
finished rows move the rows of a cache through three methods; a cache that carries a fact takes it along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from routelab.errors import HostError
from routelab.hosts.swap import subclass

_FACT = "_routelab_rows"


@dataclass(frozen=True)
class RowModes:
    """The mode of every row of a cache. ``given`` is the tensor the caller named them with, which need not be read
    again while the same one comes back at every step."""

    modes: tuple[int, ...]
    given: Tensor | None = None

    def select(self, rows: Tensor | Sequence[int]) -> RowModes:
        """Return the modes of these rows. Only where they differ must the indices be read from their device."""
        if len(set(self.modes)) == 1:
            return RowModes(self.modes[:1] * len(rows), self.given)
        return RowModes(tuple(self.modes[int(row)] for row in rows))


class _Following:
    """Behaviour mixed into the class of a cache: :class:`RowModes` move with the rows and go with a reset."""

    def reorder_cache(self, beam_idx: Any) -> None:
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        self._move(beam_idx)

    def batch_select_indices(self, indices: Any) -> None:
        super().batch_select_indices(indices)  # type: ignore[misc]
        if indices.dtype == torch.bool:
            indices = indices.nonzero().squeeze(-1)
        self._move(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        held = getattr(self, _FACT)
        if held is not None:
            self._move([row for row in range(len(held.modes)) for _ in range(repeats)])

    def reset(self) -> None:
        super().reset()  # type: ignore[misc]
        setattr(self, _FACT, None)

    def _move(self, rows: Any) -> None:
        held = getattr(self, _FACT)
        if held is not None:
            setattr(self, _FACT, held.select(rows))


def row_modes(cache: Any) -> RowModes | None:
    """Return what a cache knows about its rows, or None."""
    found: RowModes | None = getattr(cache, _FACT, None)
    return found


def require_followable(cache: Any) -> None:
    """Raise ``HostError`` for a cache of another kind than transformers' own, whose rows could not be followed."""
    if not isinstance(cache, Cache):
        raise HostError(
            f"a {type(cache).__name__} does not say which sequence its rows belong to, so their modes cannot be kept; "
            "use a transformers Cache (continuous batching is not supported)"
        )


def remember(cache: Cache, rows: RowModes | None) -> None:
    """Let ``cache`` carry the modes of its rows; None takes them away."""
    if not isinstance(cache, _Following):
        if rows is None:
            return
        cache.__class__ = subclass(_Following, type(cache))  # type: ignore[arg-type]  # mypy takes classes for unhashable
    setattr(cache, _FACT, rows)
