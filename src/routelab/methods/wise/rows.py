"""How the rows of one forward lie on the block grid, and how padded ones become what the ops take.

Rows may be padded on either side; blocks are counted from each row's own first real token, so that a row has the same
blocks alone and in a batch. The ops take rows whose real tokens come first and whose queries are the last ``q`` of
``k`` positions: real tokens are gathered to the front for them, and outputs scattered back. Rows of different lengths
with several queries behind a cache (chunked prefill of a padded batch) do not end together, so each is a call of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from routelab.hosts.recurrent.core import CoreCall


@dataclass(frozen=True)
class Part:
    """Rows that the ops take in one call.

    Attributes:
        rows: which of the batch.
        keys, queries: ``[b, k]`` and ``[b, q]``, slots in the order of real tokens; None: the slots as they are.
        places: ``[b, S]``, where each query slot went; a padded one takes the output of another.
        lengths: ``[b]`` real tokens, where they differ.
        grid: ``(Qb, Kb)`` of this part.
    """

    rows: slice
    keys: Tensor | None
    queries: Tensor | None
    places: Tensor | None
    lengths: Tensor | None
    grid: tuple[int, int]

    def take_keys(self, x: Tensor) -> Tensor:
        """``[B, G, K, d]`` to ``[b, G, k, d]``."""
        return _take(x[self.rows], self.keys)

    def take_queries(self, x: Tensor) -> Tensor:
        """``[B, H, S, d]`` to ``[b, H, q, d]``."""
        return _take(x[self.rows], self.queries)

    def give_back(self, x: Tensor) -> Tensor:
        """``[b, H, q, d]`` to ``[b, H, S, d]``."""
        return _take(x, self.places)

    def crop(self, x: Tensor) -> Tensor:
        """``[B, H, Qb, Kb]`` of all rows to this part's."""
        return x[self.rows, :, : self.grid[0], : self.grid[1]]


class Rows:
    """The rows of one forward.

    Attributes:
        mask: ``[B, K]`` bool, or None where all slots are real.
        lengths: ``[B]``, real tokens of each row. starts: ``[B]``, position of its first real query.
        query_blocks, key_blocks: Qb and Kb of the longest row.
    """

    def __init__(self, call: CoreCall, batch: int, device: torch.device, block_size: int, query_block: int) -> None:
        self.slots, self.queries = call.key_length, call.query_length
        self.block_size, self.query_block = block_size, query_block
        mask = call.key_mask
        self.mask = None if mask is None or bool(mask.all()) else mask
        if self.mask is None:
            self.lengths = torch.full((batch,), self.slots, device=device)
            self.starts = self.lengths - self.queries
        else:
            self.lengths = self.mask.sum(1)
            self.starts = self.lengths - self.mask[:, -self.queries :].sum(1)
        self.first = self.starts // query_block
        self.query_blocks = max(1, int(((self.lengths - 1) // query_block - self.first).max()) + 1)
        self.key_blocks = max(1, -(-int(self.lengths.max()) // block_size))

    @property
    def single(self) -> bool:
        """One query a row, as in decoding."""
        return self.queries == 1

    @property
    def plain(self) -> bool:
        """All slots are real and all are queries: the ops take the tensors as they are, as full attention does."""
        return self.mask is None and self.queries == self.slots

    @cached_property
    def absolute(self) -> Tensor:
        """``[B, Qb]``: the position of each query block on its row's own grid."""
        return self.first[:, None] + torch.arange(self.query_blocks, device=self.first.device)

    @cached_property
    def allowed(self) -> Tensor:
        """``[B, 1, Qb, Kb]`` bool: the admissible blocks. None of padding, none behind the query block, and none at all
        for a query block without a real query."""
        last = ((self.absolute + 1) * self.query_block).minimum(self.lengths[:, None]) - 1
        real = (last >= self.absolute * self.query_block) & (last >= self.starts[:, None])
        blocks = torch.arange(self.key_blocks, device=last.device) * self.block_size
        return ((blocks <= last[..., None]) & real[..., None])[:, None]

    @cached_property
    def real(self) -> Tensor:
        """``[B, 1, Qb]`` bool: the query blocks that have a real query."""
        return self.allowed.any(-1)

    @cached_property
    def slot_blocks(self) -> Tensor:
        """``[B, K]``: the key block of every slot; ``Kb``, one too many, where it is padding."""
        if self.mask is None:
            return (torch.arange(self.slots, device=self.lengths.device) // self.block_size).expand(
                len(self.lengths), -1
            )
        return ((self.mask.cumsum(1) - 1) // self.block_size).masked_fill(~self.mask, self.key_blocks)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The calls of the ops that make up this forward; rows without a real query are in none."""
        grid = self.query_blocks, self.key_blocks
        if self.mask is None:
            return (Part(slice(None), None, None, None, None, grid),)
        if self.queries == self.slots:
            longest = max(1, int(self.lengths.max()))
            order = (~self.mask).int().argsort(dim=1, stable=True)[:, :longest]
            places = (self.mask.cumsum(1) - 1).clamp_min(0)
            return (Part(slice(None), order, order, places, self.lengths.clamp_min(1), grid),)
        return tuple(self._alone(row) for row in (self.starts < self.lengths).nonzero()[:, 0].tolist())

    def _alone(self, row: int) -> Part:
        assert self.mask is not None
        mask = self.mask[row : row + 1]
        new = mask[:, -self.queries :]
        length, first = int(self.lengths[row]), int(self.first[row])
        grid = (length - 1) // self.query_block - first + 1, -(-length // self.block_size)
        return Part(
            slice(row, row + 1),
            keys=mask.nonzero()[None, :, 1],
            queries=new.nonzero()[None, :, 1],
            places=(new.cumsum(1) - 1).clamp_min(0),
            lengths=None,
            grid=grid,
        )


def _take(x: Tensor, slots: Tensor | None) -> Tensor:
    return x if slots is None else x.take_along_dim(slots[:, None, :, None], 2)
