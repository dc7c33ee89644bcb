"""Attention inside a block layout by a C++ kernel, ``native/block_sparse.cpp``: float32 on a CPU, no gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from routelab.ops import native
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_schedule import BlockSchedule


@dataclass(frozen=True)
class NativeSchedule(BlockSchedule):
    """Per unit, a query block of a head, its key blocks in ascending order: ``blocks[starts[u]:starts[u + 1]]``."""

    backend: ClassVar[str] = "native"
    differentiable: ClassVar[bool] = False

    admitted: Tensor
    starts: Tensor
    blocks: Tensor

    @classmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> NativeSchedule:
        units = admitted.flatten(0, 2)
        starts = pad(units.sum(-1).cumsum(0), (1, 0))
        return cls(grid, query_shape, key_shape, admitted, starts, units.nonzero()[:, 1].to(torch.int32))

    def layout(self) -> Tensor:
        return self.admitted

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        batch, heads, queries, dim = query.shape
        output = query.new_empty(batch, queries, heads, dim).transpose(1, 2)
        lists = {"starts": self.starts, "blocks": self.blocks}
        native.run("attend", query, key, output, self.grid, scale, value=value, **lists)
        return output
