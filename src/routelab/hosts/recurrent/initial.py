"""The state that the recurrence starts from, drawn per (seed, position) and from nothing else."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS = 23
_BOUND = 3.0


def draw_state(seed: int | Tensor, positions: Tensor, width: int, std: float) -> Tensor:
    """Return states ``[B or 1, S, width]`` for ``positions [B or 1, S]``, float32.

    Normal with deviation ``std``, truncated at 3 ``std`` (arXiv 2502.05171, appendix). Every number is a hash of
    (seed, position, channel), turned into a normal by the inverse distribution function, so a token's state does not
    depend on its batch, its padding, its device or on what was drawn before. ``seed`` is one number, or one per row
    ``[B]``.
    """
    seeds = torch.as_tensor(seed, dtype=torch.int64, device=positions.device).reshape(-1, 1)
    rows = _mix(_mix(seeds) + positions)
    channels = torch.arange(width, device=positions.device)
    hashed = _mix(rows[..., None] + channels)
    # 23 bits and a half: exact in float32, never 0 or 1.
    uniform = (_shift(hashed, 64 - _BITS).float() + 0.5) * 2.0**-_BITS
    covered = math.erf(_BOUND / math.sqrt(2))
    return torch.erfinv((2 * uniform - 1) * covered) * (std * math.sqrt(2))


def _mix(words: Tensor) -> Tensor:
    """Bijective hash of 64-bit words (the finaliser of SplitMix64); integer products wrap."""
    words = words + _signed(0x9E3779B97F4A7C15)
    words = (words ^ _shift(words, 30)) * _signed(_MIX_1)
    words = (words ^ _shift(words, 27)) * _signed(_MIX_2)
    return words ^ _shift(words, 31)


def _shift(words: Tensor, by: int) -> Tensor:
    """Shift right, filling with zeros; torch's own shift repeats the sign."""
    return (words >> by) & (_MASK >> by)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >> 63 else constant
