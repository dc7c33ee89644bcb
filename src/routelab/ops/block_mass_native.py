"""Block mass by a C++ kernel, ``native/block_mass.cpp``: float32 on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from routelab.ops import native
from routelab.ops.block_grid import BlockGrid


def block_mass_native(
    query: Tensor, key: Tensor, lse: Tensor, *, grid: BlockGrid, lengths: Tensor | None, scale: float
) -> Tensor:
    """Same results as :func:`routelab.ops.block_mass.block_mass`."""
    batch, heads = query.shape[:2]
    if lengths is None:
        lengths = torch.full((batch,), grid.keys, device=query.device)
    mass = query.new_zeros(batch, heads, grid.query_blocks, grid.key_blocks)
    native.run("mass", query, key, mass, grid, scale, lse=lse.float().contiguous(), lengths=lengths.long().contiguous())
    return mass
