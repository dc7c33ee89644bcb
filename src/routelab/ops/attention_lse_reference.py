"""Causal attention with its row log-sum-exp, written out: the specification of ``attention_lse``."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """``[B, H, q, k]``: ``scale q·k``, minus infinity where the key is later than the query; float32 at least."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    keys = key.to(dtype).repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = query.to(dtype) @ keys.transpose(-1, -2) * scale
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(
        1 + key.shape[2] - query.shape[2]
    )
    return scores.masked_fill(later, -torch.inf)


def attention_lse_reference(query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """Same arguments and results as :func:`routelab.ops.attention_lse.attention_lse`; ``O(H q k)`` memory."""
    scores = causal_scores(query, key, scale)
    lse = scores.logsumexp(-1)
    values = value.to(scores.dtype).repeat_interleave(query.shape[1] // key.shape[1], 1)
    return (scores.softmax(-1) @ values).to(query.dtype), lse
