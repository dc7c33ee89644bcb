"""Causal attention that also returns the log-sum-exp of its rows, from which any attention weight can be had again."""

from __future__ import annotations

from torch import Tensor

from routelab.errors import BackendError, closest
from routelab.ops.attention_lse_flash import attention_lse_flash
from routelab.ops.attention_lse_flex import attention_lse_flex
from routelab.ops.attention_lse_reference import attention_lse_reference
from routelab.ops.block_grid import check_heads

BACKENDS = ("auto", "flash", "flex", "reference")


def attention_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Tensor | None = None,
    scale: float | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Return ``O = softmax(S) V`` and ``lse_i = log Σ_j exp(S_ij)``, ``S = scale Q Kᵀ`` over the keys up to the query.

    The queries are the last ``q`` of ``k`` positions. ``exp(S_ij - lse_i)`` is the attention weight of any pair, which
    is how :func:`routelab.ops.block_mass.block_mass` comes by Eq. 5 of WISE (arXiv 2609.27373) without the matrix.
    The gradient of ``O`` flows; ``lse`` has none.

    Args:
        query: ``[B, H, q, d]``, float16, bfloat16, float32 or float64.
        key, value: ``[B, G, k, d]``; ``G`` divides ``H`` (grouped-query attention).
        lengths: ``[B]`` integers, the real tokens of each right-padded row. A real query never sees the padding that
            follows it, so they only have to be right: padding must hold finite numbers, and its rows mean nothing.
        scale: positive factor of the scores, ``d ** -0.5`` by default.
        backend: ``"flash"`` (CPU) and ``"flex"`` (CUDA) never hold ``q × k``; ``"reference"`` does. ``"auto"`` is
            flash on a CPU and flex on CUDA. A backend is never replaced by another.

    Returns:
        ``O [B, H, q, d]`` in the query's dtype and ``lse [B, H, q]`` in float32 (float64 for float64 inputs).

    Raises:
        ConfigError: shapes, dtypes or lengths that do not fit together.
        BackendError: the backend does not exist, or cannot run on this device.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    check_heads(query, key, value, lengths, scale)
    if backend not in BACKENDS:
        raise BackendError(f"no backend {backend!r} of attention_lse{closest(backend, BACKENDS)}")
    device = query.device.type
    fast = "flex" if device == "cuda" else "flash"
    if backend not in ("auto", "reference", fast):
        raise BackendError(
            f"attention_lse's backend {backend!r} does not run on {device}; choose {fast!r} or 'reference'"
        )
    run = {"flash": attention_lse_flash, "flex": attention_lse_flex, "reference": attention_lse_reference}
    output, lse = run[fast if backend == "auto" else backend](query, key, value, scale=scale)
    return output, lse.detach()
