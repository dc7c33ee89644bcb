"""Attention inside a block layout: each query block attends to its own key blocks, and causally."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from routelab.errors import BackendError, ConfigError, MissingPackageError, closest
from routelab.ops import native
from routelab.ops.block_grid import BlockGrid, check_heads
from routelab.ops.block_schedule import BlockSchedule
from routelab.ops.block_sparse_flex import FlexSchedule
from routelab.ops.block_sparse_gather import GatherSchedule
from routelab.ops.block_sparse_native import NativeSchedule
from routelab.ops.block_sparse_reference import ReferenceSchedule

BACKENDS = ("auto", "native", "gather", "flex", "triton", "reference")


def block_sparse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Tensor | BlockSchedule,
    *,
    block_size: int | None = None,
    query_block: int | None = None,
    lengths: Tensor | None = None,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """Return ``softmax(scale Q Kᵀ + M + R) V``: ``M`` admits the keys up to the query, ``R`` the blocks of the layout.

    Eq. 8 of WISE (arXiv 2609.27373). A row that may read nothing gives zero.

    Args:
        query: ``[B, H, q, d]``, float16, bfloat16, float32 or float64.
        key, value: ``[B, G, k, d]``; ``G`` divides ``H`` (grouped-query attention).
        layout: bool ``[B, H, Qb, Kb]`` on the grid of :class:`routelab.ops.block_grid.BlockGrid`, or what
            :func:`prepare` made of one, which already knows everything but ``scale``.
        block_size, query_block, lengths, backend: as in :func:`prepare`; with a schedule they are left out.
        scale: positive factor of the scores, ``d ** -0.5`` by default.

    Returns:
        ``[B, H, q, d]`` in the query's dtype. The row of a padded query is finite and means nothing.

    Raises:
        ConfigError: shapes, dtypes, sizes or lengths that do not fit together.
        BackendError: the backend does not exist, or cannot run these inputs here.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    check_heads(query, key, value, None, scale)
    if isinstance(layout, BlockSchedule):
        if (block_size, query_block, lengths, backend) != (None, None, None, "auto"):
            raise ConfigError("a schedule has block_size, query_block, lengths and backend in it; give them to prepare")
        schedule = layout
    else:
        if backend == "auto" and torch.is_grad_enabled() and value.requires_grad:
            backend = "gather"  # prepare, which chooses, does not see the value
        schedule = prepare(
            layout, query, key, block_size=block_size, query_block=query_block, lengths=lengths, backend=backend
        )
    shapes = tuple(query.shape), tuple(key.shape)
    if shapes != (schedule.query_shape, schedule.key_shape):
        raise ConfigError(
            f"the schedule was made for query {schedule.query_shape} and key {schedule.key_shape}, got {shapes}"
        )
    if not schedule.differentiable and torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)):
        raise BackendError(
            f"block_sparse's backend {schedule.backend!r} has no gradient; "
            "call it under torch.no_grad(), or prepare with 'gather'"
        )
    return schedule.attend(query, key, value, scale)


def prepare(
    layout: Tensor,
    query: Tensor,
    key: Tensor,
    *,
    block_size: int | None,
    query_block: int | None = None,
    lengths: Tensor | None = None,
    backend: str = "auto",
) -> BlockSchedule:
    """Build once what every later step with this layout shares.

    Args:
        layout: bool ``[B, H, Qb, Kb]``. Blocks later than the query block or of padding alone are dropped.
        query, key: tensors of the shapes, dtype and device that the schedule is for; their numbers are not read.
        block_size: positions of a key block.
        query_block: positions of a query block: ``block_size`` (None) or 1, a row for every token.
        lengths: ``[B]`` integers, the real tokens of each right-padded row; None: all are.
        backend: ``"native"`` is a C++ kernel for float32 on CPUs and blocks of a multiple of 16, compiled when first
            used. ``"gather"`` is plain tensor operations: any device, differentiable. ``"flex"`` is FlexAttention,
            compiled once per shape bucket, for GPUs and CPUs. ``"triton"`` needs a GPU, head size 64, 96 or 128 and
            block size 16, 32, 64 or 128. ``"reference"`` holds ``q × k``; differentiable. ``"auto"`` chooses by the
            rule in :func:`choose`, and the schedule's ``backend`` says what. A backend is never replaced by another.

    Raises:
        ConfigError, BackendError: as :func:`block_sparse`.
        MissingPackageError: Triton is asked for and not installed.
    """
    if block_size is None:
        raise ConfigError("block_size is needed with a layout; only a schedule knows its own")
    check_heads(query, key, None, lengths, 1.0)
    grid = BlockGrid.of(query, key, block_size, query_block)
    wanted = (*query.shape[:2], grid.query_blocks, grid.key_blocks)
    if layout.dtype != torch.bool or tuple(layout.shape) != wanted:
        raise ConfigError(f"layout must be bool {wanted} on this grid, got {layout.dtype} {tuple(layout.shape)}")
    if backend not in BACKENDS:
        raise BackendError(f"no backend {backend!r} of block_sparse{closest(backend, BACKENDS)}")
    schedule = _schedule_class(choose(query, key, grid) if backend == "auto" else backend, query, grid)
    admitted = layout & grid.admissible(layout.device)
    if lengths is not None:
        admitted &= (grid.real(lengths) > 0)[:, None, :, None]
    return schedule.of(admitted, grid, tuple(query.shape), tuple(key.shape))


def choose(query: Tensor, key: Tensor, grid: BlockGrid) -> str:
    """What ``"auto"`` means for these inputs.

    Where gradients are wanted, and in decoding (queries of one block), ``"gather"``. Else on a GPU ``"flex"``, not
    measured yet; on a CPU ``"native"`` where it can take the inputs and there is a compiler: in one process at 4,096
    tokens it was 1.8 to 5 times as fast as ``"gather"``, which in turn was ahead of compiled FlexAttention.
    """
    if grid.whole_blocks().query_blocks == 1 or (
        torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    ):
        return "gather"
    if query.device.type == "cuda":
        return "flex"
    return "native" if native.usable(query, grid) else "gather"


def _schedule_class(backend: str, query: Tensor, grid: BlockGrid) -> type[BlockSchedule]:
    if backend == "triton":
        if find_spec("triton") is None:
            raise MissingPackageError(
                "block_sparse's backend 'triton' needs the package triton; 'gather' needs nothing"
            )
        from routelab.ops.block_sparse_triton import TritonSchedule, limits

        reason = limits(query, grid)
        if reason is not None:
            raise BackendError(f"block_sparse's backend 'triton' cannot take these inputs: {reason}; try 'gather'")
        return TritonSchedule
    if backend == "native":
        reason = native.limits(query, grid)
        if reason is not None:
            raise BackendError(f"block_sparse's backend 'native' cannot take these inputs: {reason}; try 'gather'")
        native.load()
    if backend == "flex" and query.device.type not in ("cpu", "cuda"):
        raise BackendError(f"block_sparse's backend 'flex' does not run on {query.device.type}; try 'gather'")
    if backend == "flex" and grid.block_size < 16:
        raise BackendError(
            f"block_sparse's backend 'flex' needs blocks of at least 16, got {grid.block_size}; try 'gather'"
        )
    schedules: dict[str, type[BlockSchedule]] = {
        "native": NativeSchedule,
        "gather": GatherSchedule,
        "flex": FlexSchedule,
        "reference": ReferenceSchedule,
    }
    return schedules[backend]
