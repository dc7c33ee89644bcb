"""The banded half of the window operator: ``exp(scale q·k - lse)`` on the last ``M`` key slots of every query.

The work is cut into tiles of consecutive queries. A tile multiplies its ``C`` queries with the ``C + M - 1`` keys
that their windows touch, all heads in one batched product that stays in cache, and then keeps the band. Where the
queries stand on consecutive slots the band is a *skewed view* of the product (row stride plus one), otherwise a
gather. Batch rows with the same geometry share a tile as long as it stays small.

Shapes: B batch, b batch rows of a tile, H query heads, G key/value heads, q queries, k keys, M window, C tile rows,
W tile columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

#: Close to common M, so that little of the product is thrown away; and small enough for 16 heads x M=40 to stay below
#: torch's threading grain: elementwise work that opens no parallel region costs a busy machine no time slices.
TILE_ROWS = 48
_LOG2_E = math.log2(math.e)


class _Span(NamedTuple):
    """The slots of a tile's queries: lowest, highest, and each one's distance from the lowest; None: 0, 1, 2, ..."""

    low: int
    high: int
    shifts: tuple[int, ...] | None


@dataclass(frozen=True)
class Tile:
    """Queries ``rows`` of batch rows ``batch`` against columns ``start .. start + width - 1``, of which ``columns``
    are keys. ``shifts``: at which column, from ``start``, the window of each row begins; None means 0, 1, 2, ...
    """

    batch: slice
    rows: slice
    start: int
    width: int
    columns: slice
    shifts: Tensor | None

    @property
    def margins(self) -> tuple[int, int]:
        """How many columns of the tile lie before the first and after the last key."""
        return self.columns.start - self.start, self.start + self.width - self.columns.stop

    def band(self, scores: Tensor, window: int) -> Tensor:
        """``[..., C, W]`` to ``[..., C, M]``; a view where the rows are consecutive."""
        if self.shifts is None:
            return _skew(scores, window)
        return scores.gather(-1, self._index(window).expand(*scores.shape[:-1], window))

    def unband(self, band: Tensor) -> Tensor:
        """Inverse of :meth:`band`: ``[..., C, M]`` placed in ``[..., C, W]``, zero elsewhere, margins cut off."""
        full = band.new_zeros(*band.shape[:-1], self.width)
        if self.shifts is None:
            _skew(full, band.shape[-1]).copy_(band)
        else:
            full.scatter_(-1, self._index(band.shape[-1]).expand(band.shape), band)
        before, after = self.margins
        return full[..., before : self.width - after]

    def _index(self, window: int) -> Tensor:
        assert self.shifts is not None
        return self.shifts[:, None] + torch.arange(window, device=self.shifts.device)


def _skew(x: Tensor, window: int) -> Tensor:
    return x.as_strided((*x.shape[:-1], window), (*x.stride()[:-2], x.stride(-2) + 1, 1), x.storage_offset())


def last_slots(mask: Tensor) -> Tensor:
    """``[B|1, 1, q, k]`` bool to ``[B|1, q]``: the last True column of every row, -1 where there is none."""
    from_right = mask[:, 0].flip(-1).view(torch.uint8)
    slots = mask.shape[-1] - 1 - from_right.argmax(-1)
    return slots.masked_fill_(~mask[:, 0].any(-1), -1)


def plan(batch: int, queries: int, keys: int, window: int, slots: Tensor | None, include_self: bool) -> list[Tile]:
    """Cut the queries into tiles. ``slots [B|1, q]`` as from :func:`last_slots`; None: the last q of k."""
    device = None if slots is None else slots.device
    table = None if slots is None else slots.cpu().numpy()
    offset = keys - queries
    tiles = []
    for first in range(0, queries, TILE_ROWS):
        rows = slice(first, min(first + TILE_ROWS, queries))
        together = TILE_ROWS // (rows.stop - rows.start)
        if table is None:
            spans: list[_Span | None] = [_Span(offset + rows.start, offset + rows.stop - 1, None)]
        else:
            spans = [_span(ends) for ends in table[:, rows]]
        row = 0
        for span, members in groupby(spans * (batch // len(spans))):
            end = row + len(list(members))
            while span is not None and row < end:
                group = slice(row, min(row + together, end))
                tiles.append(_tile(group, rows, span, keys, window, include_self, device))
                row = group.stop
            row = end
    return tiles


def _tile(
    batch: slice, rows: slice, span: _Span, keys: int, window: int, include_self: bool, device: torch.device | None
) -> Tile:
    start, stop = span.low - window + include_self, span.high + include_self
    stop += (start - stop) % 8  # whole vectors
    shifts = None if span.shifts is None else torch.tensor(span.shifts, device=device)
    return Tile(batch, rows, start, stop - start, slice(max(start, 0), min(stop, keys)), shifts)


def _span(slots: np.ndarray) -> _Span | None:
    """Geometry of one tile row range; queries that see nothing (-1) do not count, None if there is no other."""
    alive = slots >= 0
    if not alive.any():
        return None
    origins = (slots - np.arange(len(slots)))[alive]
    if (origins == origins[0]).all():
        return _Span(int(origins[0]), int(origins[0]) + len(slots) - 1, None)
    low = int(slots[alive].min())
    return _Span(low, int(slots.max()), tuple((slots - low).clip(0).tolist()))


def band_forward(
    tiles: Iterable[Tile], query: Tensor, key: Tensor, lse: Tensor, window: int, mask: Tensor | None, scale: float
) -> Tensor:
    """``w [B, q, M]``: the head average of the attention weights on each query's window."""
    weights = lse.new_zeros(query.shape[0], query.shape[2], window)
    minus_lse2 = lse * -_LOG2_E
    for tile in tiles:
        mean = _attention(tile, query, key, minus_lse2, window, mask, scale).mean(1)
        weights[tile.batch, tile.rows] = mean if mask is None else mean.where(_allowed(tile, mask, window), 0.0)
    return weights


def band_scores_gradient(
    tiles: Iterable[Tile],
    grad_weights: Tensor,
    query: Tensor,
    key: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """``P dw / H`` on the band, ``[B, H, q, M]``, and the gradient of the log-sum-exp ``[B, H, q]`` it implies."""
    batch, heads, queries, _ = query.shape
    window = grad_weights.shape[-1]
    grad_scores = lse.new_zeros(batch, heads, queries, window)
    minus_lse2 = lse * -_LOG2_E
    for tile in tiles:
        grad = grad_weights[tile.batch, None, tile.rows] / heads
        if mask is not None:
            grad = grad.where(_allowed(tile, mask, window)[:, None], 0.0)
        attention = _attention(tile, query, key, minus_lse2, window, mask, scale)
        torch.mul(attention, grad, out=grad_scores[tile.batch, :, tile.rows])
    return grad_scores, -grad_scores.sum(-1)


def band_backward(
    tiles: Iterable[Tile],
    grad_scores: Tensor,
    query: Tensor,
    key: Tensor,
    scale: float,
    grad_query: Tensor,
    grad_key: Tensor,
) -> None:
    """Add the banded products ``scale dS K`` and ``scale dSᵀ Q`` to ``grad_query`` and ``grad_key``, in place."""
    for tile in tiles:
        q, k = _operands(tile, query, key, grad_scores.dtype)
        grad = tile.unband(grad_scores[tile.batch, :, tile.rows] * scale)
        grad = grad.reshape(*q.shape[:-1], k.shape[-2])
        grad_query[tile.batch, :, tile.rows] += (grad @ k).view(grad_query[tile.batch, :, tile.rows].shape)
        grad_key[tile.batch, :, tile.columns] += grad.transpose(-1, -2) @ q


def _operands(tile: Tile, query: Tensor, key: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Queries ``[b, G, H/G * C, d]`` and keys ``[b, G, W, d]`` of one tile."""
    q = query[tile.batch, :, tile.rows].to(dtype)
    k = key[tile.batch, :, tile.columns].to(dtype)
    return q.reshape(k.shape[0], k.shape[1], -1, k.shape[3]), k


def _attention(
    tile: Tile, query: Tensor, key: Tensor, minus_lse2: Tensor, window: int, mask: Tensor | None, scale: float
) -> Tensor:
    """``[b, H, C, M]``: attention weights of one tile; finite but meaningless where the mask forbids."""
    q, k = _operands(tile, query, key, minus_lse2.dtype)
    minus_lse2 = minus_lse2[tile.batch, :, tile.rows, None]
    scores = (q @ k.transpose(-1, -2)).view(*minus_lse2.shape[:3], k.shape[2])
    if any(tile.margins):
        scores = pad(scores, tile.margins, value=-torch.inf)
    # exp in base 2 is twice as fast on CPUs, and no slower where it underflows.
    band = torch.add(minus_lse2, tile.band(scores, window), alpha=scale * _LOG2_E)
    # A forbidden key may score above the log-sum-exp of the allowed ones, and its exponential overflow.
    return (band if mask is None else band.clamp_(max=0.0)).exp2_()


def _allowed(tile: Tile, mask: Tensor, window: int) -> Tensor:
    """``[b|1, C, M]`` bool: which entries of the tile's band the mask allows."""
    inside = mask[tile.batch if len(mask) > 1 else slice(None), 0, tile.rows, tile.columns]
    return tile.band(pad(inside, tile.margins, value=False), window)
