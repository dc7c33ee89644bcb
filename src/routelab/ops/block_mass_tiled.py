"""Block mass on the CPU: weights computed again from the log-sum-exp, tile by tile, and summed while in the cache.

A tile is a run of query blocks against a run of keys. One product makes its scores, to base 2 and with the log-sum-exp
already taken off (the query carries ``-lse`` as one more component, the key a one); one pass exponentiates them
(``exp2`` takes half the time of ``exp`` here); then the sums go over the queries of a block first, along the rows of
memory, which leaves little for the sum over keys. Plain tensor operations: any device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from routelab.ops.block_grid import BlockGrid

#: Rows and columns of a tile, about: a megabyte of scores stays in the cache between the passes.
TILE_ROWS = 256
TILE_COLUMNS = 1024
_LOG2_E = math.log2(math.e)


def block_mass_tiled(
    query: Tensor, key: Tensor, lse: Tensor, *, grid: BlockGrid, lengths: Tensor | None, scale: float
) -> Tensor:
    """Same results as :func:`routelab.ops.block_mass.block_mass`; one tile of weights at a time."""
    batch, heads = query.shape[:2]
    dtype = torch.promote_types(query.dtype, torch.float32)
    rows, block = grid.rows_per_block, grid.block_size
    queries, keys = _carry_lse(query.to(dtype), lse.to(dtype), grid, lengths, scale), _carry_one(key.to(dtype), grid)
    height, width = rows * max(1, TILE_ROWS // rows), block * max(1, TILE_COLUMNS // block)
    buffer = query.new_empty(height * width, dtype=dtype)
    mass = query.new_zeros(batch, heads, grid.query_blocks, grid.key_blocks, dtype=dtype)

    start_position = grid.first_row * rows
    for row, head in torch.cartesian_prod(torch.arange(batch), torch.arange(heads)).tolist():
        own, transposed, sums = queries[row, head], keys[row, head * key.shape[1] // heads].T, mass[row, head]
        for top in range(0, len(own), height):
            bottom = min(top + height, len(own))
            seen = min(keys.shape[2], block * math.ceil((start_position + bottom) / block))
            for left in range(0, seen, width):
                right = min(left + width, seen)
                tile = buffer[: (bottom - top) * (right - left)].view(bottom - top, right - left)
                torch.mm(own[top:bottom], transposed[:, left:right], out=tile)
                tile.exp2_()
                diagonal = start_position + top - left
                if diagonal < right - left - 1:
                    tile.tril_(diagonal)
                over_queries = tile if rows == 1 else tile.view(-1, rows, right - left).sum(1)
                over_keys = over_queries.unflatten(-1, (-1, block)).sum(-1)
                sums[top // rows : bottom // rows, left // block : right // block] = over_keys
    if lengths is None:
        lengths = torch.full((batch,), grid.keys, device=query.device)
    return mass.div_(grid.real(lengths).clamp_min(1)[:, None, :, None])


def _carry_lse(query: Tensor, lse: Tensor, grid: BlockGrid, lengths: Tensor | None, scale: float) -> Tensor:
    """``[B, H, Qb × rows, d + 1]`` in units of log 2; minus infinity, so weight zero, where no real query stands."""
    after = grid.query_blocks * grid.rows_per_block - grid.lead - grid.queries
    if lengths is not None:
        positions = torch.arange(grid.offset, grid.keys, device=query.device)
        lse = lse.masked_fill((positions >= lengths[:, None])[:, None], torch.inf)
    lse = pad(lse, (grid.lead, after), value=torch.inf)
    return torch.cat([pad(query * (scale * _LOG2_E), (0, 0, grid.lead, after)), lse[..., None] * -_LOG2_E], -1)


def _carry_one(key: Tensor, grid: BlockGrid) -> Tensor:
    """``[B, G, Kb × B, d + 1]``; what is added behind the last key is later than every query."""
    keys = pad(key, (0, 1, 0, grid.key_blocks * grid.block_size - grid.keys))
    keys[..., -1] = 1.0
    return keys
