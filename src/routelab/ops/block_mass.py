"""How much attention each query block pays to each key block, without ever holding the attention matrix."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from routelab.errors import BackendError, ConfigError, MissingPackageError, closest
from routelab.ops import native
from routelab.ops.block_grid import BlockGrid, check_heads
from routelab.ops.block_mass_native import block_mass_native
from routelab.ops.block_mass_reference import block_mass_reference
from routelab.ops.block_mass_tiled import block_mass_tiled

BACKENDS = ("auto", "native", "tiled", "triton", "reference")


@torch.no_grad()
def block_mass(
    query: Tensor,
    key: Tensor,
    lse: Tensor,
    *,
    block_size: int,
    query_block: int | None = None,
    lengths: Tensor | None = None,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Return the mean attention mass of every query block on every key block::

        r_qb = 1/|I_q| Σ_{i in I_q} Σ_{j in I_b} exp(scale q_i·k_j - lse_i)        (causal: j ≤ i)

    Eq. 5 of WISE (arXiv 2609.27373). ``I_q`` holds the real queries of query block ``q``; each of its rows sums to one.
    Blocks lie on the absolute grid (:class:`routelab.ops.block_grid.BlockGrid`): the queries are the last ``q`` of
    ``k`` positions, and the first and last block may be partial. No gradient: the result feeds a choice.

    Args:
        query: ``[B, H, q, d]``, float16, bfloat16, float32 or float64.
        key: ``[B, G, k, d]``; ``G`` divides ``H`` (grouped-query attention).
        lse: ``[B, H, q]``, from :func:`routelab.ops.attention_lse.attention_lse` of the same inputs.
        block_size: positions of a key block.
        query_block: positions of a query block: ``block_size`` (None) or 1, a row for every token.
        lengths: ``[B]`` integers, the real tokens of each right-padded row; None: all are.
        scale: as given to ``attention_lse``.
        backend: ``"tiled"`` computes the weights again a tile at a time, on any device; ``"native"`` is a C++ kernel
            for float32 on CPUs and blocks of a multiple of 16, compiled when first used; ``"triton"`` is a kernel for
            GPUs; ``"reference"`` holds all weights. ``"auto"`` is triton on a GPU where it can (float32 or less, block
            size 16, 32, 64 or 128, Triton installed), native on a CPU where it can and there is a compiler, else
            tiled. A backend that is named is never replaced.

    Returns:
        ``[B, H, Qb, Kb]`` in float32 (float64 for float64 inputs). A query block without a real query has mass zero.

    Raises:
        ConfigError: shapes, dtypes, sizes or lengths that do not fit together.
        BackendError: the backend does not exist, or cannot run these inputs here.
        MissingPackageError: Triton is asked for and not installed.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    check_heads(query, key, None, lengths, scale)
    grid = BlockGrid.of(query, key, block_size, query_block)
    if lse.shape != query.shape[:3] or not lse.is_floating_point():
        raise ConfigError(
            f"lse must be floating [B, H, q], got {tuple(lse.shape)} {lse.dtype} for {tuple(query.shape)}"
        )
    if backend not in BACKENDS:
        raise BackendError(f"no backend {backend!r} of block_mass{closest(backend, BACKENDS)}")
    run = _choose(backend, query, grid)
    return run(query, key, lse, grid=grid, lengths=lengths, scale=scale)


def _choose(backend: str, query: Tensor, grid: BlockGrid) -> Callable[..., Tensor]:
    plain = {"reference": block_mass_reference, "tiled": block_mass_tiled}
    if backend in plain:
        return plain[backend]
    if backend == "auto" and query.device.type != "cuda":
        return block_mass_native if native.usable(query, grid) else block_mass_tiled
    if backend == "native":
        reason = native.limits(query, grid)
        if reason is not None:
            raise _refused(backend, reason)
        native.load()
        return block_mass_native
    if find_spec("triton") is None:
        if backend == "auto":
            return block_mass_tiled
        raise MissingPackageError("block_mass's backend 'triton' needs the package triton; 'tiled' needs nothing")
    from routelab.ops.block_mass_triton import block_mass_triton, limits

    reason = limits(query, grid)
    if reason is None:
        return block_mass_triton
    if backend == "auto":
        return block_mass_tiled
    raise _refused(backend, reason)


def _refused(backend: str, reason: str) -> BackendError:
    return BackendError(f"block_mass's backend {backend!r} cannot take these inputs: {reason}; try 'tiled'")
