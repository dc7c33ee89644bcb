"""Block mass as a Triton kernel: one program per query block and head, weights never leave the registers.

Runs on GPUs; on a CPU only under Triton's interpreter (``TRITON_INTERPRET=1``), which is for tests.
"""

from __future__ import annotations

import math

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from routelab.ops.block_grid import BlockGrid

_LOG2_E = math.log2(math.e)


def block_mass_triton(
    query: Tensor, key: Tensor, lse: Tensor, *, grid: BlockGrid, lengths: Tensor | None, scale: float
) -> Tensor:
    """Same results as :func:`routelab.ops.block_mass.block_mass`."""
    tiles = grid.whole_blocks()
    batch, heads, _, dim = query.shape
    if lengths is None:
        lengths = torch.full((batch,), grid.keys, device=query.device)
    mass = query.new_zeros(batch, heads, grid.query_blocks, grid.key_blocks, dtype=torch.float32)
    _mass[(tiles.query_blocks, batch * heads)](
        query,
        key,
        lse.float().contiguous(),
        lengths.to(torch.int32),
        grid.real(lengths).clamp_min(1).to(torch.int32),
        mass,
        *query.stride(),
        *key.stride(),
        scale * _LOG2_E,
        _LOG2_E,
        heads,
        heads // key.shape[1],
        tiles.key_blocks,
        tiles.query_blocks,
        tiles.queries,
        tiles.keys,
        tiles.lead,
        tiles.first_row,
        BLOCK=tiles.block_size,
        DIM=dim,
        WIDTH=triton.next_power_of_2(dim),
        PER_TOKEN=grid.rows_per_block == 1,
    )
    return mass


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _mass(  # type: ignore[no-untyped-def]
    query,
    key,
    lse,
    lengths,
    numbers,
    mass,
    query_batch,
    query_head,
    query_row,
    query_dim,
    key_batch,
    key_head,
    key_row,
    key_dim,
    scale,
    to_base_2,
    heads,
    group,
    key_blocks,
    query_blocks,
    queries,
    keys,
    lead,
    first_row,
    BLOCK: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    PER_TOKEN: tl.constexpr,
):
    tile, unit_head = tl.program_id(0), tl.program_id(1)
    batch, head = unit_head // heads, unit_head % heads
    inner, dims = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    rows = tile * BLOCK + inner - lead
    positions = rows + keys - queries
    real = (rows >= 0) & (rows < queries) & (positions < tl.load(lengths + batch))
    inside = dims[None, :] < DIM
    query += batch * query_batch + head * query_head
    key += batch * key_batch + head // group * key_head
    q = tl.load(query + rows[:, None] * query_row + dims[None, :] * query_dim, mask=real[:, None] & inside, other=0.0)
    base = tl.load(lse + unit_head * queries + rows, mask=real, other=0.0) * to_base_2
    for block in range(first_row + tile + 1):
        slots = block * BLOCK + inner
        stored = (slots < keys)[:, None] & inside
        k = tl.load(key + slots[:, None] * key_row + dims[None, :] * key_dim, mask=stored, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale - base[:, None]
        allowed = (slots[None, :] <= positions[:, None]) & real[:, None]
        weights = tl.sum(tl.exp2(tl.where(allowed, scores, float("-inf"))), 1)
        if PER_TOKEN:
            tl.store(mass + (unit_head * queries + rows) * key_blocks + block, weights, mask=real)
        else:
            unit = unit_head * query_blocks + tile
            number = tl.load(numbers + batch * query_blocks + tile).to(tl.float32)
            tl.store(mass + unit * key_blocks + block, tl.sum(weights, 0) / number)


def limits(query: Tensor, grid: BlockGrid) -> str | None:
    """Why the kernel cannot take these inputs, or None."""
    if query.device.type != "cuda" and not triton.knobs.runtime.interpret:
        return f"it does not run on {query.device.type}"
    if grid.block_size not in (16, 32, 64, 128):
        return f"block_size must be 16, 32, 64 or 128, got {grid.block_size}"
    if query.dtype == torch.float64:
        return "it computes in float32, which float64 inputs do not want"
    return None
