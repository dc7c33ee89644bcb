"""Attention inside a block layout, written out: the specification of ``block_sparse``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from routelab.ops.attention_lse_reference import causal_scores
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_schedule import BlockSchedule


@dataclass(frozen=True)
class ReferenceSchedule(BlockSchedule):
    """The layout itself; every step expands it to a mask of single positions. ``O(H q k)`` memory."""

    backend: ClassVar[str] = "reference"

    admitted: Tensor

    @classmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> ReferenceSchedule:
        return cls(grid, query_shape, key_shape, admitted)

    def layout(self) -> Tensor:
        return self.admitted

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        grid = self.grid
        rows = torch.arange(grid.offset, grid.keys, device=query.device) // grid.rows_per_block - grid.first_row
        columns = torch.arange(grid.keys, device=query.device) // grid.block_size
        allowed = self.admitted[:, :, rows][..., columns]
        scores = causal_scores(query, key, scale).masked_fill(~allowed, -torch.inf)
        empty = scores.isneginf().all(-1, keepdim=True)
        attention = scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
        values = value.to(scores.dtype).repeat_interleave(query.shape[1] // key.shape[1], 1)
        return (attention @ values).to(query.dtype)
