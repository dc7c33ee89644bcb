"""Attention inside a block layout by a C++ kernel of our own: float32 on a CPU, without gradients.

``scaled_dot_product_attention`` is at its best with hundreds of queries, and a query block has 16 to 128. The kernel
(``native/block_sparse.cpp``) is built for these.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from routelab.ops import native
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_schedule import BlockSchedule

#: Keys that the kernel handles together: ``PANEL`` in its source.
PANEL = 16


@dataclass(frozen=True)
class NativeSchedule(BlockSchedule):
    """Per unit, a query block of a head, its key blocks in ascending order: ``blocks[starts[u]:starts[u + 1]]``."""

    backend: ClassVar[str] = "native"
    differentiable: ClassVar[bool] = False

    admitted: Tensor
    starts: Tensor
    blocks: Tensor

    @classmethod
    def of(
        cls, admitted: Tensor, grid: BlockGrid, query_shape: tuple[int, ...], key_shape: tuple[int, ...]
    ) -> NativeSchedule:
        units = admitted.flatten(0, 2)
        starts = torch.nn.functional.pad(units.sum(-1).cumsum(0), (1, 0))
        return cls(grid, query_shape, key_shape, admitted, starts, units.nonzero()[:, 1].to(torch.int32))

    def layout(self) -> Tensor:
        return self.admitted

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
        batch, heads, queries, dim = query.shape
        output = query.new_empty(batch, queries, heads, dim).transpose(1, 2)
        problem = _Problem(
            query=query.data_ptr(),
            key=key.data_ptr(),
            value=value.data_ptr(),
            output=output.data_ptr(),
            starts=self.starts.data_ptr(),
            blocks=self.blocks.data_ptr(),
            query_strides=_Strides(*query.stride()[:3]),
            key_strides=_Strides(*key.stride()[:3]),
            value_strides=_Strides(*value.stride()[:3]),
            output_strides=_Strides(*output.stride()[:3]),
            batch=batch,
            heads=heads,
            groups=key.shape[1],
            queries=queries,
            keys=key.shape[2],
            dim=dim,
            block=self.grid.block_size,
            first_row=self.grid.first_row,
            query_blocks=self.grid.query_blocks,
            threads=torch.get_num_threads(),
            scale=scale * math.log2(math.e),
        )
        library = native.load("block_sparse")
        library.packed_size.restype = library.space_size.restype = ctypes.c_int64
        packed = query.new_empty(library.packed_size(ctypes.byref(problem)))
        space = query.new_empty(library.space_size(ctypes.byref(problem)))
        problem.packed, problem.space = packed.data_ptr(), space.data_ptr()
        library.attend(ctypes.byref(problem))
        return output


def limits(query: Tensor, grid: BlockGrid) -> str | None:
    """Why the kernel cannot take these inputs, or None."""
    if query.device.type != "cpu" or query.dtype != torch.float32:
        return f"it is for float32 on a CPU, got {query.dtype} on {query.device.type}"
    if grid.rows_per_block != grid.block_size:
        return "it has no row for every token"
    if grid.block_size % PANEL:
        return f"blocks must hold a multiple of {PANEL} positions, got {grid.block_size}"
    return None


class _Strides(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("batch", "head", "row"))


class _Problem(ctypes.Structure):
    """``Problem`` of the kernel's source, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "output", "packed", "space")),
        *((name, ctypes.c_void_p) for name in ("starts", "blocks")),
        *((f"{name}_strides", _Strides) for name in ("query", "key", "value", "output")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "groups", "queries", "keys", "dim")),
        *((name, ctypes.c_int64) for name in ("block", "first_row", "query_blocks", "threads")),
        ("scale", ctypes.c_float),
    )
