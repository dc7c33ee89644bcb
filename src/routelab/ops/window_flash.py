"""The window operator on a flash kernel that returns its log-sum-exp: ``O(q M)`` extra memory, exact gradients.

Forward: the stock kernel gives ``O`` and ``lse``; the band is ``exp(scale q·k - lse)`` (``window_band``).

Backward, with ``X = P dw / H`` on the band and ``dlse_i = -sum_j X_ij``, the gradient of the scores is

    dS = P (dO Vᵀ - delta + dlse) + X,      delta_i = dO_i · O_i.

The stock backward kernel computes ``delta`` itself from the output it is given, so it is given another one,
``O' = O - dO dlse / |dO|²``, for which ``dO · O' = delta - dlse``; the banded ``X`` is then added to the
gradients of query and key. Derivation and limits: ``docs/window.md``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from routelab.ops.window_band import band_backward, band_forward, band_scores_gradient, last_slots, plan

_kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_kernel_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

_VANISHING = 1e-20  # |dlse| below this counts as zero: its square has no float32


def window_attention_flash(
    query: Tensor, key: Tensor, value: Tensor, window: int, *, mask: Tensor | None, scale: float, include_self: bool
) -> tuple[Tensor, Tensor]:
    """Same arguments and results as :func:`routelab.ops.window.window_attention`; one opaque operator to
    ``torch.compile`` and to activation checkpointing. Not differentiable twice."""
    query, key, value = _dense_rows(query), _dense_rows(key), _dense_rows(value)
    inner = min(window, key.shape[2])
    differentiable = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    run = _forward if differentiable or torch.compiler.is_compiling() else _compute
    output, weights, _ = run(query, key, value, mask, inner, scale, include_self)
    return output, weights if inner == window else pad(weights, (window - inner, 0))


def _compute(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, window: int, scale: float, include_self: bool
) -> tuple[Tensor, Tensor, Tensor]:
    slots = None if mask is None else last_slots(mask)
    bias, causal = _kernel_mask(query, mask, slots)
    output, lse = _attend(query, key, value, bias, causal, scale)
    tiles = plan(query.shape[0], query.shape[2], key.shape[2], window, slots, include_self)
    return output, band_forward(tiles, query, key, lse, window, mask, scale), lse


_forward = torch.library.custom_op("routelab::window_attention", _compute, mutates_args=())


@_forward.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, window: int, scale: float, include_self: bool
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    dtype = torch.promote_types(query.dtype, torch.float32)
    lse = query.new_empty(batch, queries, heads, dtype=dtype).transpose(1, 2)
    return torch.empty_like(query), query.new_empty(batch, queries, window, dtype=dtype), lse


@torch.library.custom_op("routelab::window_attention_backward", mutates_args=())
def _backward(
    grad_output: Tensor,
    grad_weights: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor,
    lse: Tensor,
    scale: float,
    include_self: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    if grad_weights is not None and query.dtype == torch.float16:  # O' leaves the range of float16
        grad_output, query, key, value, output = (x.float() for x in (grad_output, query, key, value, output))
        grads = _backward(grad_output, grad_weights, query, key, value, mask, output, lse, scale, include_self)
        return grads[0].half(), grads[1].half(), grads[2].half()
    grad_output = _dense_rows(grad_output)
    slots = None if mask is None else last_slots(mask)
    bias, causal = _kernel_mask(query, mask, slots)
    if grad_weights is None:
        return _attend_backward(grad_output, query, key, value, output, lse, bias, causal, scale)
    window = grad_weights.shape[-1]
    tiles = plan(query.shape[0], query.shape[2], key.shape[2], window, slots, include_self)
    grad_scores, grad_lse = band_scores_gradient(tiles, grad_weights, query, key, lse, mask, scale)
    grad_output, output = _absorb(grad_output, output, grad_lse)
    grads = _attend_backward(grad_output, query, key, value, output, lse, bias, causal, scale)
    band_backward(tiles, grad_scores, query, key, scale, grads[0], grads[1])
    return grads


@_backward.register_fake
def _(
    grad_output: Tensor,
    grad_weights: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor,
    lse: Tensor,
    scale: float,
    include_self: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    grads = [x.new_empty(x.transpose(1, 2).shape).transpose(1, 2) for x in (query, key, value)]  # heads inside
    return grads[0], grads[1], grads[2]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask, _, ctx.scale, ctx.include_self = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, key, value, mask, output[0], output[2])


def _gradient(ctx: Any, grad_output: Tensor | None, grad_weights: Tensor | None, _: Any) -> tuple[Any, ...]:
    query, key, value, mask, output, lse = ctx.saved_tensors
    if grad_output is None and grad_weights is None:
        return (None,) * 7
    dense = torch.zeros_like(output) if grad_output is None else grad_output
    grads = _backward(dense, grad_weights, query, key, value, mask, output, lse, ctx.scale, ctx.include_self)
    return grads[0], grads[1], None if grad_output is None else grads[2], None, None, None, None


_forward.register_autograd(_gradient, setup_context=_setup)


def _dense_rows(x: Tensor) -> Tensor:
    """The kernel takes any layout whose rows are contiguous and do not overlap."""
    return x if x.stride(-1) == 1 and x.stride(-2) >= x.shape[-1] else x.contiguous()


def _kernel_mask(query: Tensor, mask: Tensor | None, slots: Tensor | None) -> tuple[Tensor | None, bool]:
    """The mask as the kernel takes it (additive), and whether it may skip what lies above the main diagonal.

    Causal attention over padded keys, the common case, shrinks to one row ``[B|1, 1, 1, k]``.
    """
    if mask is None or slots is None:
        return None, True
    causal = bool((slots <= torch.arange(mask.shape[2], device=slots.device)).all())
    if causal:
        visible = mask.any(2, keepdim=True)
        if torch.equal(mask, visible.expand_as(mask).tril()):
            mask = visible
    return torch.where(mask, 0.0, -torch.inf).to(query.dtype), causal


def _parts(query: Tensor, key: Tensor, bias: Tensor | None, causal: bool) -> list[tuple[slice, bool]]:
    """Key ranges, one kernel call each, and which are causal: the kernel aligns the diagonal to the first key,
    but queries after a prefix see the prefix whole."""
    keys, prefix = key.shape[2], key.shape[2] - query.shape[2]
    if bias is not None or not causal or prefix == 0:
        return [(slice(0, keys), causal)]
    if query.shape[2] == 1:
        return [(slice(0, keys), False)]
    return [(slice(0, prefix), False), (slice(prefix, keys), True)]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """``O [B, H, q, d]`` and ``lse [B, H, q]``."""
    results = [
        _kernel(query, key[:, :, part], value[:, :, part], 0.0, diagonal, attn_mask=bias, scale=scale)
        for part, diagonal in _parts(query, key, bias, causal)
    ]
    if len(results) == 1:
        return results[0]
    (first, lse_first), (second, lse_second) = results
    share = (lse_first - lse_second).sigmoid_()[..., None]
    return second.to(share.dtype).lerp(first.to(share.dtype), share).to(query.dtype), lse_first.logaddexp(lse_second)


def _attend_backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    bias: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    results = [
        _kernel_backward(
            grad_output,
            query,
            key[:, :, part],
            value[:, :, part],
            output,
            lse,
            0.0,
            diagonal,
            attn_mask=bias,
            scale=scale,
        )
        for part, diagonal in _parts(query, key, bias, causal)
    ]
    if len(results) == 1:
        return results[0]
    (query_first, *first), (query_second, *second) = results
    grad_key, grad_value = (
        torch.cat([x.transpose(1, 2) for x in pair], 1).transpose(1, 2) for pair in zip(first, second, strict=True)
    )
    return query_first.add_(query_second), grad_key, grad_value


def _absorb(grad_output: Tensor, output: Tensor, grad_lse: Tensor) -> tuple[Tensor, Tensor]:
    """``dO'`` and ``O'`` with ``dO' · O' = dO · O - dlse``; ``dO'`` is ``dO`` except in negligible rows.

    A row whose ``dO`` vanishes beside its ``dlse`` offers no direction to put ``dlse`` in. There the first
    component of ``dO'`` becomes ``t |dlse|`` with ``t`` far below rounding, which adds at most ``t |v| |dlse|`` to dS.
    """
    size = grad_lse.abs()
    floor = size * (torch.finfo(size.dtype).eps / 128)
    norm = torch.linalg.vector_norm(grad_output, dim=-1, dtype=size.dtype)
    negligible = norm < floor
    if negligible.any():
        axis = torch.arange(grad_output.shape[-1], device=grad_output.device) == 0
        stand_in = (floor[..., None] * axis).to(grad_output.dtype)
        grad_output = stand_in.where(negligible[..., None], grad_output)
        norm = floor.where(negligible, norm)
    share = (grad_lse / norm / norm).where(size > _VANISHING, 0.0)
    shifted = output.addcmul(grad_output, share[..., None].to(grad_output.dtype), value=-1)
    return grad_output, shifted
