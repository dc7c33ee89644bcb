"""Block mass written out: the specification of ``block_mass``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from routelab.ops.attention_lse_reference import causal_scores
from routelab.ops.block_grid import BlockGrid


def block_mass_reference(
    query: Tensor, key: Tensor, lse: Tensor, *, grid: BlockGrid, lengths: Tensor | None, scale: float
) -> Tensor:
    """Materialise the attention weights, then average them; ``O(H q k)`` memory.

    Same results as :func:`routelab.ops.block_mass.block_mass`; computes in float32, or in float64 for float64 inputs.
    """
    weights = (causal_scores(query, key, scale) - lse[..., None]).exp()
    if lengths is None:
        lengths = torch.full(query.shape[:1], grid.keys, device=query.device)
    positions = torch.arange(grid.offset, grid.keys, device=query.device)
    weights = weights * (positions < lengths[:, None])[:, None, :, None]

    rows, columns, block = grid.query_blocks * grid.rows_per_block, grid.key_blocks * grid.block_size, grid.block_size
    weights = pad(weights, (0, columns - grid.keys, grid.lead, rows - grid.lead - grid.queries))
    weights = weights.unflatten(-1, (grid.key_blocks, block)).unflatten(2, (grid.query_blocks, grid.rows_per_block))
    return weights.sum((3, 5)) / grid.real(lengths).clamp_min(1)[:, None, :, None]
