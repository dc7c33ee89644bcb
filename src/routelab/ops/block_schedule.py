"""A block layout made ready for one backend: built once, used by every later step that keeps the layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from routelab.ops.block_grid import BlockGrid


@dataclass(frozen=True)
class BlockSchedule(ABC):
    """What :func:`routelab.ops.block_sparse.prepare` makes of a layout.

    Attributes:
        backend: the name of what runs when this schedule is used.
        differentiable: whether gradients flow through it.
        grid: where queries and keys lie.
        query_shape, key_shape: ``[B, H, q, d]`` and ``[B, G, k, d]`` of the tensors it was made for.
    """

    backend: ClassVar[str]
    differentiable: ClassVar[bool] = True

    grid: BlockGrid
    query_shape: tuple[int, ...]
    key_shape: tuple[int, ...]

    @classmethod
    @abstractmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> BlockSchedule:
        """From ``admitted [B, H, Qb, Kb]``, a layout within what causality admits."""

    @abstractmethod
    def layout(self) -> Tensor:
        """The blocks that will be read, bool ``[B, H, Qb, Kb]``: the layout given, less what causality or padding
        rule out."""

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention inside the layout, ``[B, H, q, d]``; inputs already checked against the shapes above."""
