"""The banded half of the window operator: ``exp(scale q·k - lse)`` on the last ``M`` key slots of every query.

The work is cut into tiles of consecutive queries of one batch row. A tile multiplies its ``C`` queries with the
``C + M - 1`` keys that their windows touch, all heads in one batched product that stays in cache, and then keeps
the band. Where the queries stand on consecutive slots the band is a *skewed view* of the product (row stride
plus one), otherwise a gather.

Shapes: B batch, H query heads, G key/value heads, q queries, k keys, M window, C tile rows, W tile columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import pad

TILE_ROWS = 64


@dataclass(frozen=True)
class Tile:
    """Queries ``rows`` of batch row ``batch`` against columns ``start .. start + width - 1``, of which ``columns``
    are keys. ``shifts``: at which column, from ``start``, the window of each row begins; None means 0, 1, 2, ...
    """

    batch: int
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


def plan(
    batch: int, queries: int, keys: int, window: int, slots: Tensor | None, include_self: bool
) -> list[Tile]:
    """Cut the queries into tiles. ``slots [B|1, q]`` as from :func:`last_slots`; None: the last q of k."""

    def tile(row: int, rows: slice, low: int, high: int, shifts: Tensor | None = None) -> Tile:
        start, stop = low - window + include_self, high + include_self
        return Tile(row, rows, start, stop - start, slice(max(start, 0), max(min(stop, keys), 0)), shifts)

    table = None if slots is None else slots.cpu().numpy()
    tiles = []
    for row, first in product(range(batch), range(0, queries, TILE_ROWS)):
        rows = slice(first, min(first + TILE_ROWS, queries))
        if table is None:
            tiles.append(tile(row, rows, first + keys - queries, rows.stop - 1 + keys - queries))
            continue
        ends = table[row % len(table), rows]
        alive = ends >= 0
        origins = (ends - range(len(ends)))[alive]
        if not origins.size:
            continue
        if (origins == origins[0]).all():
            tiles.append(tile(row, rows, int(origins[0]), int(origins[0]) + len(ends) - 1))
            continue
        low, high = int(ends[alive].min()), int(ends[alive].max())
        shifts = torch.from_numpy((ends - low).clip(0)).to(slots.device)
        tiles.append(tile(row, rows, low, high, shifts))
    return tiles


def band_forward(
    tiles: Iterable[Tile], query: Tensor, key: Tensor, lse: Tensor, window: int, mask: Tensor | None, scale: float
) -> Tensor:
    """``w [B, q, M]``: the head average of the attention weights on each query's window."""
    weights = lse.new_zeros(query.shape[0], query.shape[2], window)
    for tile in tiles:
        mean = _attention(tile, query, key, lse, window, mask, scale).mean(0)
        weights[tile.batch, tile.rows] = mean if mask is None else mean.where(_allowed(tile, mask, window), 0.0)
    return weights


def band_scores_gradient(
    tiles: Iterable[Tile], grad_weights: Tensor, query: Tensor, key: Tensor, lse: Tensor, mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """``P dw / H`` on the band, ``[B, H, q, M]``, and the gradient of the log-sum-exp ``[B, H, q]`` it implies."""
    batch, heads, queries, _ = query.shape
    window = grad_weights.shape[-1]
    grad_scores = lse.new_zeros(batch, heads, queries, window)
    for tile in tiles:
        grad = grad_weights[tile.batch, tile.rows] / heads
        if mask is not None:
            grad = grad.where(_allowed(tile, mask, window), 0.0)
        attention = _attention(tile, query, key, lse, window, mask, scale)
        torch.mul(attention, grad, out=grad_scores[tile.batch, :, tile.rows])
    return grad_scores, -grad_scores.sum(-1)


def band_backward(
    tiles: Iterable[Tile], grad_scores: Tensor, query: Tensor, key: Tensor, scale: float,
    grad_query: Tensor, grad_key: Tensor,
) -> None:
    """Add the banded products ``scale dS K`` and ``scale dSᵀ Q`` to ``grad_query`` and ``grad_key``, in place."""
    groups = key.shape[1]
    for tile in tiles:
        q = query[tile.batch, :, tile.rows].to(grad_scores.dtype)
        k = key[tile.batch, :, tile.columns].to(grad_scores.dtype)
        heads, count, dim = q.shape
        grad = tile.unband(grad_scores[tile.batch, :, tile.rows] * scale).reshape(groups, -1, k.shape[1])
        grad_query[tile.batch, :, tile.rows] += (grad @ k).view(heads, count, dim)
        grad_key[tile.batch, :, tile.columns] += grad.transpose(-1, -2) @ q.reshape(groups, -1, dim)


def _attention(
    tile: Tile, query: Tensor, key: Tensor, lse: Tensor, window: int, mask: Tensor | None, scale: float
) -> Tensor:
    """``[H, C, M]``: attention weights of one tile; finite but meaningless where the mask forbids."""
    q = query[tile.batch, :, tile.rows].to(lse.dtype)
    k = key[tile.batch, :, tile.columns].to(lse.dtype)
    heads, count, dim = q.shape
    scores = (q.reshape(k.shape[0], -1, dim) @ k.transpose(-1, -2)).view(heads, count, k.shape[1])
    if any(tile.margins):
        scores = pad(scores, tile.margins, value=-torch.inf)
    band = tile.band(scores, window) * scale
    band -= lse[tile.batch, :, tile.rows, None]
    # A forbidden key may score above the log-sum-exp of the allowed ones, and its exponential overflow.
    return (band if mask is None else band.clamp_(max=0.0)).exp_()


def _allowed(tile: Tile, mask: Tensor, window: int) -> Tensor:
    """``[C, M]`` bool: which entries of the tile's band the mask allows."""
    inside = mask[tile.batch % len(mask), 0, tile.rows, tile.columns]
    return tile.band(pad(inside, tile.margins, value=False), window)
