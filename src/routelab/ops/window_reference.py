"""The window operator written out: the specification that every other backend is tested against."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """``[1, 1, q, k]`` bool: the queries are the last ``q`` of ``k`` positions and see no later one."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)[None, None]


def query_slots(mask: Tensor) -> Tensor:
    """``[B|1, q]``: the key slot of every query, which is the last column that it may attend to (-1: none)."""
    columns = torch.arange(mask.shape[-1], device=mask.device)
    return torch.where(mask[:, 0], columns, -1).amax(-1)


def window_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    mask: Tensor | None,
    scale: float,
    include_self: bool,
) -> tuple[Tensor, Tensor]:
    """Materialise softmax attention, then read the window off its head average. ``O(H q k)`` memory.

    Same arguments and results as :func:`routelab.ops.window.window_attention`; computes in float32, or in
    float64 for float64 inputs. Differentiable as often as wanted.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    groups = query.shape[1] // key.shape[1]
    if mask is None:
        mask = causal_mask(query.shape[2], key.shape[2], query.device)
    alive = mask.any(-1, keepdim=True)

    keys = key.to(dtype).repeat_interleave(groups, 1)
    values = value.to(dtype).repeat_interleave(groups, 1)
    scores = query.to(dtype) @ keys.transpose(-1, -2) * scale
    scores = scores.masked_fill(~mask, -torch.inf).masked_fill(~alive, 0.0)
    attention = scores.softmax(-1).masked_fill(~mask, 0.0)
    output = (attention @ values).to(query.dtype)

    last = query_slots(mask) if include_self else query_slots(mask) - 1
    slots = last[..., None] + torch.arange(1 - window, 1, device=query.device)
    slots = slots.expand(query.shape[0], -1, -1)
    weights = attention.mean(1).gather(-1, slots.clamp_min(0))
    return output, weights.masked_fill(slots < 0, 0.0)
