"""Attention inside a block layout on FlexAttention, compiled: the form for GPUs, which also runs on CPUs.

Three traps of FlexAttention are closed here:

- Where compilation fails or is given up, it computes from ``mask_mod`` alone and ignores the block list. ``mask_mod``
  therefore encodes the whole support, and compilation is ``fullgraph``, which raises where it would be given up.
- Each new shape compiles again, and after a few dynamo stops compiling that function. Lengths are rounded up to
  buckets, and every bucket compiles a function of its own.
- Blocks are counted from the first query. Queries are set on the absolute grid by rows in front, which read nothing.

On CPUs the generated kernel evaluates ``mask_mod`` in every block, the full ones too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_schedule import BlockSchedule

Bucket = tuple[Any, ...]


@dataclass(frozen=True)
class FlexSchedule(BlockSchedule):
    """The layout as FlexAttention's block mask, padded to a bucket of shapes."""

    backend: ClassVar[str] = "flex"
    differentiable: ClassVar[bool] = False

    mask: BlockMask
    supported: Tensor

    @classmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> FlexSchedule:
        size = grid.block_size
        tiles = grid.whole_blocks()
        tile_bucket, key_bucket = _bucket(tiles.query_blocks), _bucket(tiles.key_blocks)
        per_token = grid.rows_per_block == 1
        before, after = (tiles.lead, tile_bucket * size - tiles.lead - grid.queries) if per_token else (0, 0)
        more = after if per_token else tile_bucket - tiles.query_blocks
        supported = pad(admitted, (0, key_bucket - tiles.key_blocks, before, more))
        rows = supported.unflatten(2, (tile_bucket, -1))

        columns = torch.arange(key_bucket, device=admitted.device)
        diagonal = torch.arange(tile_bucket, device=admitted.device) + tiles.first_row
        some = rows.any(3)
        full = rows.all(3) & (columns < diagonal[:, None])
        first = torch.tensor(tiles.first_row * size, device=admitted.device)
        row_size = 1 if per_token else size

        def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (j <= i + first) & supported[b, h, i // row_size, j // size]

        mask = BlockMask.from_kv_blocks(
            *_lists(some & ~full),
            *_lists(full),
            BLOCK_SIZE=size,
            mask_mod=allowed,
            seq_lengths=(tile_bucket * size, key_bucket * size),
            compute_q_blocks=False,
        )
        return cls(grid, query_shape, key_shape, mask, supported)

    def layout(self) -> Tensor:
        """Read back from FlexAttention's block lists and, for rows within a block, from the support they share."""
        tiles = self.grid.whole_blocks()
        by_tile = self.supported.unflatten(2, (self.mask.kv_indices.shape[2], -1))
        listed = torch.zeros_like(by_tile[:, :, :, 0])
        for numbers, indices in (
            (self.mask.kv_num_blocks, self.mask.kv_indices),
            (self.mask.full_kv_num_blocks, self.mask.full_kv_indices),
        ):
            if numbers is not None and indices is not None:
                used = torch.arange(indices.shape[-1], device=indices.device) < numbers[..., None]
                listed |= torch.zeros_like(listed).scatter(-1, indices.long(), used)
        rows = listed
        if self.grid.rows_per_block == 1:
            rows = (listed[:, :, :, None] & by_tile).flatten(2, 3)
            rows = rows[:, :, tiles.lead :]
        return rows[:, :, : self.grid.query_blocks, : self.grid.key_blocks]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        lead = self.grid.whole_blocks().lead
        queries, keys = self.mask.seq_lengths
        padded = pad(query, (0, 0, lead, queries - lead - query.shape[2]))
        key, value = (pad(x, (0, 0, 0, keys - key.shape[2])) for x in (key, value))
        bucket = (
            padded.shape,
            key.shape,
            query.dtype,
            query.device,
            self.grid.block_size,
            self.grid.rows_per_block,
            scale,
        )
        with torch.no_grad():
            output: Tensor = _compiled(bucket)(padded, key, value, self.mask, scale)
        return output[:, :, lead : lead + query.shape[2]]


def _run(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Any:
    options = {"BLOCK_M": min(mask.BLOCK_SIZE[0], 128), "BLOCK_N": min(mask.BLOCK_SIZE[1], 64)}
    return flex_attention(
        query,
        key,
        value,
        block_mask=mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
        kernel_options=options if query.device.type == "cuda" else None,  # type: ignore[arg-type]
    )


@cache
def _compiled(bucket: Bucket) -> Any:
    """A compiled function for one bucket. Dynamo counts compilations by code object, so each gets its own."""
    code = _run.__code__.replace(co_name=f"block_sparse_{abs(hash(bucket))}")
    return torch.compile(FunctionType(code, _run.__globals__), dynamic=False, fullgraph=True)


def _bucket(blocks: int) -> int:
    """The next power of two: blocks beyond the last are in no list and cost no time."""
    return 1 << (blocks - 1).bit_length()


def _lists(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Per query block, how many key blocks, and their indices in ascending order (then the others)."""
    indices = blocks.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
    return blocks.sum(-1, dtype=torch.int32), indices.to(torch.int32)
