"""Attention inside a block layout by gathering: every query block meets its own key blocks and nothing else.

A *unit* is one query block of one head. Units of a head with equally many key blocks are gathered and handed to
``scaled_dot_product_attention`` together, so nothing is padded. All blocks but the one on the diagonal are seen whole,
and that one comes last: the mask is the same right-aligned triangle everywhere, a view of one small template.

Per-token layouts gather what any token of the block may read and mask the rest token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_schedule import BlockSchedule

#: Numbers in the gathered keys of a group, about: more would leave the cache before they are used.
GROUP_NUMBERS = 2**18


@dataclass(frozen=True)
class Group:
    """Units that are computed together.

    Attributes:
        units: their place in ``GatherSchedule.order``.
        blocks: ``[U × count]``, their key blocks, counted through batch rows and key/value heads.
        diagonal: whether the last of the ``count`` is the block on the diagonal.
        tokens: ``[U, T, count]`` bool, what each of a unit's ``T`` queries may read; None where they agree.
    """

    units: slice
    blocks: Tensor
    diagonal: bool
    tokens: Tensor | None


@dataclass(frozen=True)
class GatherSchedule(BlockSchedule):
    """Units in the order of computation (head by head, the shortest first), and their groups."""

    backend: ClassVar[str] = "gather"

    admitted: Tensor
    order: Tensor
    groups: tuple[Group, ...]

    @classmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> GatherSchedule:
        tiles = grid.whole_blocks()
        blocks = grid.any_row(admitted)
        tokens = None
        if grid.rows_per_block == 1:
            tokens = pad(admitted, (0, 0, *_margins(tiles))).unflatten(2, (tiles.query_blocks, -1))
        on_diagonal = blocks.gather(-1, tiles.last_block(blocks.device)[:, None].expand(*blocks.shape[:3], 1))

        batch, heads = query_shape[:2]
        head = torch.arange(batch * heads, device=blocks.device).repeat_interleave(tiles.query_blocks)
        kind = (head * (tiles.key_blocks + 1) + blocks.sum(-1).flatten()) * 2 + on_diagonal.flatten()
        order = kind.argsort(stable=True)
        order = order[blocks.any(-1).flatten()[order]]
        unit, column = blocks.flatten(0, 2)[order].nonzero(as_tuple=True)
        group_size = heads // key_shape[1]  # batch row and head share one count, so the division finds both
        flat = (head[order] // group_size)[unit] * tiles.key_blocks + column

        groups: list[Group] = []
        start = used = 0
        kinds, numbers = (x.tolist() for x in kind[order].unique_consecutive(return_counts=True))
        for value, number in zip(kinds, numbers, strict=True):
            count = value // 2 % (tiles.key_blocks + 1)
            most = max(1, GROUP_NUMBERS // (count * grid.block_size * query_shape[3]))
            for first in range(start, start + number, most):
                units = slice(first, min(first + most, start + number))
                inside = slice(used, used + (units.stop - first) * count)
                picked = None
                if tokens is not None:
                    rows = tokens.flatten(0, 2)[order[units]]
                    index = column[inside].view(-1, 1, count).expand(-1, rows.shape[1], -1)
                    picked = rows.gather(-1, index)
                groups.append(Group(units, flat[inside], bool(value % 2), picked))
                used = inside.stop
            start += number
        return cls(grid, query_shape, key_shape, admitted, order, tuple(groups))

    def layout(self) -> Tensor:
        return self.admitted

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        tiles = self.grid.whole_blocks()
        before, after = _margins(tiles)
        dim = query.shape[-1]
        queries = pad(query, (0, 0, before, after)).reshape(*query.shape[:2], tiles.query_blocks, -1, dim)
        rows = queries.shape[3]
        queries = queries.flatten(0, 2)
        later = torch.ones(tiles.block_size, tiles.block_size, dtype=torch.bool, device=query.device).triu(1)
        later = later[tiles.lead - before :][:rows]
        widest = max((len(g.blocks) // (g.units.stop - g.units.start) for g in self.groups), default=0)
        template = pad(query.new_zeros(later.shape).masked_fill_(later, -torch.inf), (widest * tiles.block_size, 0))

        gather = _Cache(key, value, tiles, max((len(g.blocks) for g in self.groups), default=0))
        output = torch.zeros_like(queries)
        for group in self.groups:
            number = group.units.stop - group.units.start
            keys, values = gather(group.blocks, number)
            length = keys.shape[2]
            mask = template[:, -length:] if group.diagonal else None
            if group.tokens is not None:
                seen = template[:, -length:] if group.diagonal else template[:, :length]
                allowed = group.tokens[..., None]
                mask = torch.where(allowed, seen.unflatten(-1, (-1, tiles.block_size)), -torch.inf).flatten(2)[:, None]
            units = self.order[group.units]
            own = queries.index_select(0, units)[:, None]
            result = scaled_dot_product_attention(own, keys, values, attn_mask=mask, scale=scale)
            output.index_copy_(0, units, result[:, 0])
        return output.view(*query.shape[:2], -1, dim)[:, :, before : before + query.shape[2]]


class _Cache:
    """Keys and values, of which blocks can be had.

    Many query blocks read every block many times: both are laid out block by block once, and a block is one copy.
    Queries of a single block (decoding) read what they need where it lies, and nothing else of the cache is touched.
    """

    def __init__(self, key: Tensor, value: Tensor, tiles: BlockGrid, most: int) -> None:
        self.key, self.value, self.size, self.dim = key, value, tiles.block_size, key.shape[-1]
        self.packed: Tensor | None = None
        self.buffer: Tensor | None = None
        if tiles.query_blocks > 1:
            behind = tiles.key_blocks * tiles.block_size - tiles.keys
            self.packed = pad(torch.cat([key, value], -1), (0, 0, 0, behind)).view(-1, self.size * 2 * self.dim)
            if not (torch.is_grad_enabled() and self.packed.requires_grad):
                self.buffer = self.packed.new_empty(most, self.packed.shape[1])

    def __call__(self, blocks: Tensor, units: int) -> tuple[Tensor, Tensor]:
        """``blocks [U × count]`` to keys and values ``[U, 1, count × B, d]``."""
        if self.packed is None:
            heads, length = self.key.shape[1:3]
            in_row = -(-length // self.size)
            head = (blocks // in_row)[:, None]
            # What lies behind the last key stands behind every query and is masked; any key will do.
            slots = (blocks % in_row * self.size)[:, None] + torch.arange(self.size, device=blocks.device)
            where = head // heads, head % heads, slots.clamp_max(length - 1)
            return tuple(x[where].view(units, 1, -1, self.dim) for x in (self.key, self.value))  # type: ignore[return-value]
        buffer = None if self.buffer is None else self.buffer[: len(blocks)]
        both = torch.index_select(self.packed, 0, blocks, out=buffer).view(units, 1, -1, 2 * self.dim)
        return both[..., : self.dim], both[..., self.dim :]


def _margins(tiles: BlockGrid) -> tuple[int, int]:
    """Rows to add before and after the queries so that they fill their blocks; a lone block is left as it is."""
    return (0, 0) if tiles.query_blocks == 1 else tiles.margins()
