"""The window operator on FlexAttention: the form for GPUs, with ``O(q M)`` memory beside the mask.

FlexAttention returns the log-sum-exp with a gradient of its own, so the band (``window_band``) is an ordinary
differentiable function of query, key and lse, and autograd adds the two paths.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention
from torch.nn.functional import pad

from routelab.ops.window_band import band_backward, band_forward, band_scores_gradient, last_slots, plan


def window_attention_flex(
    query: Tensor, key: Tensor, value: Tensor, window: int, *, mask: Tensor | None, scale: float, include_self: bool
) -> tuple[Tensor, Tensor]:
    """Same arguments and results as :func:`routelab.ops.window.window_attention`."""
    attend = _compiled() if query.device.type == "cuda" else flex_attention
    output, aux = attend(
        query,
        key,
        value,
        block_mask=_block_mask(mask, query.shape[2], key.shape[2], query.device),
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
        return_aux=AuxRequest(lse=True),
    )
    size = min(window, key.shape[2])
    weights = _Band.apply(query, key, aux.lse, mask, size, scale, include_self)
    return output, pad(weights, (window - size, 0))


@cache
def _compiled() -> Any:
    """The fused kernel; without compilation FlexAttention would materialise attention."""
    return torch.compile(flex_attention, dynamic=True)


def _block_mask(mask: Tensor | None, queries: int, keys: int, device: torch.device) -> BlockMask:
    offset = keys - queries

    def causal(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + offset

    def allowed(b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        assert mask is not None
        return mask[b if len(mask) > 1 else 0, 0, i, j]

    batch = None if mask is None else len(mask)
    return create_block_mask(causal if mask is None else allowed, batch, None, queries, keys, device=str(device))


class _Band(torch.autograd.Function):
    """``w [B, q, M]`` from query, key and the log-sum-exp, with gradients to all three."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, lse: Tensor, mask: Tensor | None, window: int, scale: float, self_: bool
    ) -> Tensor:
        slots = None if mask is None else last_slots(mask)
        ctx.tiles = plan(query.shape[0], query.shape[2], key.shape[2], window, slots, self_)
        ctx.save_for_backward(query, key, lse, mask)
        ctx.scale = scale
        return band_forward(ctx.tiles, query, key, lse, window, mask, scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, lse, mask = ctx.saved_tensors
        grad_scores, grad_lse = band_scores_gradient(ctx.tiles, grads[0], query, key, lse, mask, ctx.scale)
        grad_query, grad_key = torch.zeros_like(query), torch.zeros_like(key)
        band_backward(ctx.tiles, grad_scores, query, key, ctx.scale, grad_query, grad_key)
        return grad_query, grad_key, grad_lse, None, None, None, None
