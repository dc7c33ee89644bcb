"""Where the slots of a call stand, and whether its arguments belong together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from routelab.errors import HostError
from routelab.hosts.recurrent.cache import RecurrentCache


@dataclass(frozen=True)
class Placed:
    """``positions [B or 1, S]`` of the new slots, K, and the mask ``[B, K]`` of real slots (None: all are)."""

    positions: Tensor
    key_length: int
    key_mask: Tensor | None


def place(
    input_ids: Tensor,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    cache: RecurrentCache | None,
    block_size: int,
) -> Placed:
    """Return where the slots of a call stand: a token's position is its index among the real tokens of its row.

    Raises:
        HostError: the mask has another shape than ``[B, K]``, is missing where the cached slots had one, positions
            reach ``block_size``, or positions that start again, as in packed rows, whose attention would mix.
    """
    rows, length = input_ids.shape
    before = cache.get_seq_length() if cache is not None else 0
    key_length = before + length
    mask = _real(attention_mask, rows, key_length)
    if cache is not None:
        if attention_mask is None and cache.padded:
            raise HostError("the cached slots are padded, so this call needs an attention_mask over all of them")
        cache.padded = mask is not None
    if position_ids is not None:
        positions = position_ids
        if mask is None and bool((positions[:, 1:] < positions[:, :-1]).any()):
            raise HostError("position_ids start again within a row: packed rows are not supported by this host")
    else:
        positions = positions_of(mask, key_length, input_ids.device)[:, before:]
    last = key_length - 1
    if position_ids is not None or (mask is not None and key_length > block_size):
        last = int(positions.max())  # read back from the device only where counting slots does not bound it
    if last >= block_size:
        raise HostError(f"position {last} is beyond the {block_size} positions of this model (block_size)")
    return Placed(positions, key_length, mask)


def positions_of(mask: Tensor | None, slots: int, device: torch.device) -> Tensor:
    """Return ``[B or 1, slots]``: how many real tokens stand before each slot of its row."""
    if mask is None:
        return torch.arange(slots, device=device)[None]
    return (mask.long().cumsum(-1) - 1).clamp_min(0)


def require_cache(cache: object, num_steps: int) -> None:
    """Raise ``HostError`` for a cache of another kind, or one made with another number of steps."""
    if cache is None:
        return
    if not isinstance(cache, RecurrentCache):
        raise HostError(
            f"a {type(cache).__name__} has no slot per recurrence step; leave the cache to generate, or pass a "
            "routelab.hosts.recurrent.RecurrentCache"
        )
    cache.require_steps(num_steps)


def require_state(state: Tensor, like: Tensor) -> None:
    """Raise ``HostError`` unless an initial state has the shape ``[B, S, d]`` of this call."""
    if state.shape != like.shape:
        raise HostError(f"initial_state has shape {list(state.shape)}; this call needs [B, S, d] = {list(like.shape)}")


def _real(attention_mask: Tensor | None, rows: int, key_length: int) -> Tensor | None:
    """Return the mask as bool, or None where every slot is real."""
    if attention_mask is None:
        return None
    if attention_mask.shape != (rows, key_length):
        raise HostError(
            f"attention_mask has shape {list(attention_mask.shape)}; this call needs [B, K] = {[rows, key_length]}, "
            "cached and new slots together"
        )
    mask = attention_mask.bool()
    return None if bool(mask.all()) else mask
