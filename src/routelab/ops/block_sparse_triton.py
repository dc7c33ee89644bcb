"""Attention inside a block layout as a Triton kernel: one program per query block and head, over its own key blocks.

Runs on GPUs; on a CPU only under Triton's interpreter (``TRITON_INTERPRET=1``), which is for tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_mass_triton import limits as tile_limits
from routelab.ops.block_schedule import BlockSchedule

_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class TritonSchedule(BlockSchedule):
    """Per query block, its key blocks in ascending order; per-token layouts are read row by row besides."""

    backend: ClassVar[str] = "triton"
    differentiable: ClassVar[bool] = False

    admitted: Tensor
    counts: Tensor
    indices: Tensor

    @classmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> TritonSchedule:
        blocks = grid.any_row(admitted)
        indices = blocks.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices.to(torch.int32)
        counts = blocks.sum(-1, dtype=torch.int32)
        return cls(grid, query_shape, key_shape, admitted.contiguous(), counts, indices.contiguous())

    def layout(self) -> Tensor:
        return self.admitted

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        tiles = self.grid.whole_blocks()
        batch, heads, _, dim = query.shape
        output = torch.empty_like(query)
        _attend[(tiles.query_blocks, batch * heads)](
            query,
            key,
            value,
            output,
            self.counts,
            self.indices,
            self.admitted,
            *query.stride(),
            *key.stride(),
            *value.stride(),
            *output.stride(),
            scale * _LOG2_E,
            heads,
            heads // key.shape[1],
            tiles.query_blocks,
            tiles.key_blocks,
            tiles.queries,
            tiles.keys,
            tiles.lead,
            BLOCK=tiles.block_size,
            DIM=dim,
            WIDTH=triton.next_power_of_2(dim),
            PER_TOKEN=self.grid.rows_per_block == 1,
        )
        return output


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _attend(  # type: ignore[no-untyped-def]
    query,
    key,
    value,
    output,
    counts,
    indices,
    admitted,
    query_batch,
    query_head,
    query_row,
    query_dim,
    key_batch,
    key_head,
    key_row,
    key_dim,
    value_batch,
    value_head,
    value_row,
    value_dim,
    output_batch,
    output_head,
    output_row,
    output_dim,
    scale,
    heads,
    group,
    query_blocks,
    key_blocks,
    queries,
    keys,
    lead,
    BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    PER_TOKEN: tl.constexpr,
):
    tile, unit_head = tl.program_id(0), tl.program_id(1)
    batch, head = unit_head // heads, unit_head % heads
    inner, dims = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    rows = tile * BLOCK + inner - lead
    real = (rows >= 0) & (rows < queries)
    positions = rows + keys - queries

    query += batch * query_batch + head * query_head
    key += batch * key_batch + head // group * key_head
    value += batch * value_batch + head // group * value_head
    inside = dims[None, :] < DIM
    q = tl.load(query + rows[:, None] * query_row + dims[None, :] * query_dim, mask=real[:, None] & inside, other=0.0)

    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    result = tl.zeros([BLOCK, WIDTH], tl.float32)
    unit = unit_head * query_blocks + tile
    for place in range(tl.load(counts + unit)):
        block = tl.load(indices + unit * key_blocks + place)
        slots = block * BLOCK + inner
        stored = (slots < keys)[:, None] & inside
        k = tl.load(key + slots[:, None] * key_row + dims[None, :] * key_dim, mask=stored, other=0.0)
        v = tl.load(value + slots[:, None] * value_row + dims[None, :] * value_dim, mask=stored, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        allowed = slots[None, :] <= positions[:, None]
        if PER_TOKEN:
            chosen = tl.load(admitted + (unit_head * queries + rows) * key_blocks + block, mask=real, other=0)
            allowed = allowed & (chosen != 0)[:, None]
        scores = tl.where(allowed, scores, float("-inf"))
        risen = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(risen == float("-inf"), 0.0, risen)
        weights = tl.exp2(scores - base[:, None])
        faded = tl.exp2(highest - base)
        total = total * faded + tl.sum(weights, 1)
        result = result * faded[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        highest = risen
    result = result / tl.where(total == 0.0, 1.0, total)[:, None]
    where = output + batch * output_batch + head * output_head + rows[:, None] * output_row + dims[None, :] * output_dim
    tl.store(where, result.to(output.dtype.element_ty), mask=real[:, None] & inside)


def limits(query: Tensor, grid: BlockGrid) -> str | None:
    """Why the kernel cannot take these inputs, or None."""
    if query.shape[-1] not in (64, 96, 128):
        return f"the head size must be 64, 96 or 128, got {query.shape[-1]}"
    return tile_limits(query, grid)
