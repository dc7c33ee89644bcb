"""Causal attention with its row log-sum-exp on the CPU's stock flash kernel, which computes both."""

from __future__ import annotations

import torch
from torch import Tensor

_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def attention_lse_flash(query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """Same arguments and results as :func:`routelab.ops.attention_lse.attention_lse`.

    With ``q = k`` the output has the very bits of ``scaled_dot_product_attention``, which calls the same kernel. That
    kernel aligns the diagonal to the first key, so queries after a prefix take two calls: the prefix, which they see
    whole, and the square behind it.
    """
    query, key, value = (_dense_rows(x) for x in (query, key, value))
    prefix = key.shape[2] - query.shape[2]
    if prefix == 0 or query.shape[2] == 1:
        return _kernel(query, key, value, 0.0, prefix == 0, scale=scale)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        # The log-sum-exp that joins the two parts has no gradient; one call with a mask has, in O(q k) memory.
        later = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).triu(1 + prefix)
        mask = query.new_zeros(later.shape).masked_fill_(later, -torch.inf)
        masked: tuple[Tensor, Tensor] = _kernel(query, key, value, 0.0, False, attn_mask=mask, scale=scale)
        return masked
    before, lse_before = _kernel(query, key[:, :, :prefix], value[:, :, :prefix], 0.0, False, scale=scale)
    square, lse_square = _kernel(query, key[:, :, prefix:], value[:, :, prefix:], 0.0, True, scale=scale)
    share = (lse_before - lse_square).sigmoid()[..., None]
    output = square.to(share.dtype).lerp(before.to(share.dtype), share).to(query.dtype)
    return output, lse_before.logaddexp(lse_square)


def _dense_rows(x: Tensor) -> Tensor:
    """The kernel takes any layout whose rows are contiguous and do not overlap."""
    return x if x.stride(-1) == 1 and x.stride(-2) >= x.shape[-1] else x.contiguous()
