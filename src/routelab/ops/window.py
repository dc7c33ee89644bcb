"""Attention that also tells where it looked: the softmax output and, per query, its weights on the last M tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from routelab.errors import BackendError, ConfigError, closest
from routelab.ops.window_flash import window_attention_flash
from routelab.ops.window_flex import window_attention_flex
from routelab.ops.window_reference import window_attention_reference

BACKENDS = ("auto", "flash", "flex", "reference")


class WindowAttention(NamedTuple):
    """``output [B, H, q, d]`` in the query's dtype; ``window [B, q, M]`` in float32 (float64 for float64 inputs)."""

    output: Tensor
    window: Tensor


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
    include_self: bool = True,
    backend: str = "auto",
) -> WindowAttention:
    """Softmax attention together with a window of its weights, without materialising them.

    With ``P = softmax(scale Q Kᵀ)`` over the allowed keys and ``s_i`` the key slot of query ``i``::

        output_i = Σ_j P_ij V_j        window_im = 1/H Σ_h P^h_{i, s_i - M + 1 + m},   m = 0 … M-1

    (``s_i - M + m`` without ``include_self``), zero where there is no such key or the mask forbids it: the window
    of Attention-Aware Routing (arXiv 2609.20974, section 3.2). Exact gradients flow through both results.

    Args:
        query: ``[B, H, q, d]``, float16, bfloat16, float32 or float64.
        key, value: ``[B, G, k, d]``; ``G`` divides ``H`` (grouped-query attention).
        window: ``M ≥ 1``; may exceed ``k``.
        mask: bool ``[B or 1, 1, q, k]``, True where a query may attend. It carries causality itself, and ``s_i`` is
            the last True column of row ``i``; a row without any gives zero output and a zero window.
            None: causal, the queries being the last ``q`` of ``k`` positions.
        scale: positive factor of the scores, ``d ** -0.5`` by default.
        include_self: whether the window ends at the query's own slot or one before it.
        backend: ``"flash"`` (CPU) and ``"flex"`` (CUDA) need ``O(q M)`` extra memory; ``"reference"`` materialises
            attention, runs anywhere and is differentiable twice. ``"auto"`` is flash on a CPU and flex on CUDA. A
            backend is never replaced by another.

    Raises:
        ConfigError: shapes, dtypes, window or mask that do not fit together.
        BackendError: the backend does not exist, or cannot run on this device.
    """
    device = query.device.type
    run = _choose(backend, device)
    lower = device != "meta" and torch.is_autocast_enabled(device)
    if lower:  # as scaled_dot_product_attention does under autocast
        dtype = torch.get_autocast_dtype(device)
        query, key, value = (x if x.dtype == torch.float64 else x.to(dtype) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    _check(query, key, value, window, mask, scale)
    with torch.autocast(device, enabled=False) if lower else nullcontext():
        results = run(query, key, value, window, mask=mask, scale=scale, include_self=bool(include_self))
    return WindowAttention(*results)


def _choose(backend: str, device: str) -> Callable[..., tuple[Tensor, Tensor]]:
    if backend not in BACKENDS:
        raise BackendError(f"no window backend {backend!r}{closest(backend, BACKENDS)}")
    if backend == "reference":
        return window_attention_reference
    fast = {"cpu": "flash", "meta": "flash", "cuda": "flex"}.get(device)
    if fast is None or backend not in ("auto", fast):
        raise BackendError(
            f"the window backend {backend!r} does not run on {device}; choose "
            f"{'' if fast is None else f'{fast!r} or '}'reference', which materialises attention"
        )
    return window_attention_flash if fast == "flash" else window_attention_flex


def _check(query: Tensor, key: Tensor, value: Tensor, window: int, mask: Tensor | None, scale: float) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise ConfigError(f"window must be an integer of at least 1, got {window!r}")
    if query.dim() != 4 or key.dim() != 4 or key.shape != value.shape:
        raise ConfigError(f"need query [B, H, q, d] and key, value [B, G, k, d] of one shape; got {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3] or 0 in (*query.shape, *key.shape):
        raise ConfigError(f"batch and head size must agree and no dimension be empty; got {shapes}")
    if query.shape[1] % key.shape[1]:
        raise ConfigError(f"key/value heads must divide query heads; got {shapes}")
    if not query.dtype == key.dtype == value.dtype or not query.is_floating_point():
        kinds = f"{query.dtype}, {key.dtype}, {value.dtype}"
        raise ConfigError(f"query, key and value must share one floating dtype, got {kinds}")
    if not 0.0 < scale < math.inf:
        raise ConfigError(f"scale must be positive and finite, got {scale}")
    if mask is None:
        if query.shape[2] > key.shape[2]:
            raise ConfigError(f"without a mask the queries are the last q of k positions, but q > k: {shapes}")
        return
    if mask.dtype != torch.bool:
        raise ConfigError(f"mask must be bool with True where a query may attend, got {mask.dtype}")
    wanted = (1, query.shape[2], key.shape[2])
    if mask.dim() != 4 or mask.shape[0] not in (1, query.shape[0]) or tuple(mask.shape[1:]) != wanted:
        raise ConfigError(f"mask must be [B or 1, 1, q, k], got {tuple(mask.shape)} for {shapes}")
