"""Where queries and keys lie on the block grid: the geometry that ``block_mass`` and ``block_sparse`` share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from routelab.errors import ConfigError


@dataclass(frozen=True)
class BlockGrid:
    """``queries`` consecutive positions, the last of ``keys``, cut into blocks on the absolute grid.

    Query ``i`` stands at position ``keys - queries + i``. Key block ``b`` holds positions ``b B … (b + 1) B - 1``,
    query block ``r`` those of row ``first_row + r`` of a grid of ``rows_per_block`` positions; the first and the last
    block may be partial.

    Attributes:
        queries, keys: ``q`` and ``k``, ``1 ≤ q ≤ k``.
        block_size: ``B``, positions of a key block.
        rows_per_block: positions of a query block: ``B``, or 1 where every token has a row of its own.
    """

    queries: int
    keys: int
    block_size: int
    rows_per_block: int

    @classmethod
    def of(cls, query: Tensor, key: Tensor, block_size: int, query_block: int | None) -> BlockGrid:
        """The grid of ``query [B, H, q, d]`` and ``key [B, G, k, d]``.

        Raises:
            ConfigError: the sizes do not fit together.
        """
        if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
            raise ConfigError(f"block_size must be an integer of at least 1, got {block_size!r}")
        rows = block_size if query_block is None else query_block
        if rows not in (1, block_size):
            raise ConfigError(f"query_block must be 1 or block_size ({block_size}), got {query_block!r}")
        return cls(query.shape[2], key.shape[2], block_size, rows)

    @property
    def offset(self) -> int:
        """Position of the first query."""
        return self.keys - self.queries

    @property
    def first_row(self) -> int:
        """Row of the absolute grid that the first query stands in."""
        return self.offset // self.rows_per_block

    @property
    def lead(self) -> int:
        """Positions of the first query block that lie before the first query."""
        return self.offset % self.rows_per_block

    @cached_property
    def query_blocks(self) -> int:
        return (self.keys - 1) // self.rows_per_block - self.first_row + 1

    @cached_property
    def key_blocks(self) -> int:
        return math.ceil(self.keys / self.block_size)

    def whole_blocks(self) -> BlockGrid:
        """The same positions with query blocks of ``block_size``, whatever rows this grid has."""
        return replace(self, rows_per_block=self.block_size)

    def last_block(self, device: torch.device | None = None) -> Tensor:
        """``[Qb]``: the last key block that causality admits for each query block, the one on the diagonal."""
        rows = torch.arange(self.first_row, self.first_row + self.query_blocks, device=device)
        return rows if self.rows_per_block == self.block_size else rows // self.block_size

    def admissible(self, device: torch.device | None = None) -> Tensor:
        """``[Qb, Kb]`` bool: the blocks that causality admits."""
        return torch.arange(self.key_blocks, device=device) <= self.last_block(device)[:, None]

    def margins(self) -> tuple[int, int]:
        """Positions of the first and the last query block before and after the queries."""
        return self.lead, self.query_blocks * self.rows_per_block - self.lead - self.queries

    def any_row(self, layout: Tensor) -> Tensor:
        """``[..., Qb, Kb]`` of this grid to that of :meth:`whole_blocks`: what any row of a query block admits."""
        if self.rows_per_block == self.block_size:
            return layout
        whole = self.whole_blocks()
        return pad(layout, (0, 0, *whole.margins())).unflatten(-2, (whole.query_blocks, -1)).any(-2)

    def real(self, lengths: Tensor) -> Tensor:
        """``[B, Qb]``: how many of each query block's queries are real, given ``lengths [B]``."""
        starts = torch.arange(self.first_row, self.first_row + self.query_blocks, device=lengths.device)
        starts = starts * self.rows_per_block
        ends = torch.minimum(starts + self.rows_per_block, lengths[:, None])
        return (ends - starts.clamp_min(self.offset)).clamp_min(0)


def check_heads(query: Tensor, key: Tensor, value: Tensor | None, lengths: Tensor | None, scale: float) -> None:
    """Raise ``ConfigError`` unless query ``[B, H, q, d]``, key and value ``[B, G, k, d]`` and lengths fit together."""
    named = {"query": query, "key": key} | ({} if value is None else {"value": value})
    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items())
    if query.dim() != 4 or key.dim() != 4 or (value is not None and value.shape != key.shape):
        raise ConfigError(f"need query [B, H, q, d] and key, value [B, G, k, d] of one shape; got {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3] or 0 in (*query.shape, *key.shape):
        raise ConfigError(f"batch and head size must agree and no dimension be empty; got {shapes}")
    if query.shape[1] % key.shape[1]:
        raise ConfigError(f"key/value heads must divide query heads; got {shapes}")
    if query.shape[2] > key.shape[2]:
        raise ConfigError(f"the queries are the last q of k positions, but q > k: {shapes}")
    if len({tensor.dtype for tensor in named.values()}) > 1 or not query.is_floating_point():
        kinds = ", ".join(f"{name} {tensor.dtype}" for name, tensor in named.items())
        raise ConfigError(f"the inputs must share one floating dtype, got {kinds}")
    if not 0.0 < scale < math.inf:
        raise ConfigError(f"scale must be positive and finite, got {scale}")
    if lengths is None:
        return
    if lengths.shape != query.shape[:1] or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ConfigError(f"lengths must be one integer a row, got {tuple(lengths.shape)} {lengths.dtype} for {shapes}")
    if bool((lengths < 1).any()) or bool((lengths > key.shape[2]).any()):
        raise ConfigError(f"lengths must lie between 1 and the {key.shape[2]} keys, got {lengths.tolist()}")
