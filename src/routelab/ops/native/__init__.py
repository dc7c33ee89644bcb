"""C++ kernels for CPUs: compiled by the machine's own compiler when first used, kept, and called through ctypes.

``scaled_dot_product_attention`` is at its best with hundreds of queries, and a query block has 16 to 128: these kernels
are built for such blocks. Plain C++17 with the vector types of GCC and Clang, without headers or libraries of torch, so
that a compilation takes seconds and the result depends on the source, the compiler and the processor alone, which name
the file.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from routelab.errors import BackendError
from routelab.ops.block_grid import BlockGrid

#: Keys that the kernels handle together, as in ``blocks.hpp``.
PANEL = 16

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread")
#: What torch finds in the processor, as the compiler calls it. Others are compiled for the machine's base set.
_VECTORS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx512f", "-mfma")}


def compiler() -> str | None:
    """Return the path of the C++ compiler: ``$CXX``, or the first of ``c++``, ``g++`` and ``clang++``."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else _COMPILERS
    return next((path for name in wanted if (path := shutil.which(name))), None)


@cache
def load() -> ctypes.CDLL:
    """Return the library of this folder's C++ files, compiling them unless that was done before.

    It is kept below ``$XDG_CACHE_HOME``, or ``~/.cache``, in ``routelab``.

    Raises:
        BackendError: no compiler, one that fails, or no place to keep the library.
    """
    command = compiler()
    if command is None:
        raise BackendError(f"needs a C++ compiler: none of $CXX, {', '.join(_COMPILERS)} is on the path")
    folder = Path(__file__).parent
    sources, headers = sorted(folder.glob("*.cpp")), sorted(folder.glob("*.hpp"))
    flags = (*_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ()))
    try:
        version = subprocess.run([command, "--version"], capture_output=True, check=True).stdout
        parts = (*(file.read_bytes() for file in (*sources, *headers)), version, " ".join(flags).encode())
        digest = hashlib.sha256(b"\0".join((*parts, platform.machine().encode()))).hexdigest()[:16]
        library = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "routelab", f"blocks-{digest}.so")
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            # Under the process's own name first: others may be compiling the same.
            temporary = library.with_name(f"{library.name}.{os.getpid()}")
            subprocess.run([command, *flags, *map(str, sources), "-o", str(temporary)], capture_output=True, check=True)
            os.replace(temporary, library)
        return ctypes.CDLL(str(library))
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").strip()[:500]
        raise BackendError(f"{command} fails on the kernels in {folder.name}: {told}") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        raise BackendError(f"the kernels cannot be compiled and kept: {error}; set XDG_CACHE_HOME") from error


def limits(query: Tensor, grid: BlockGrid) -> str | None:
    """Why the kernels cannot take these inputs, or None."""
    if query.device.type != "cpu" or query.dtype != torch.float32:
        return f"it is for float32 on a CPU, got {query.dtype} on {query.device.type}"
    if grid.rows_per_block != grid.block_size:
        return "it has no row for every token"
    if grid.block_size % PANEL:
        return f"blocks must hold a multiple of {PANEL} positions, got {grid.block_size}"
    return None


def usable(query: Tensor, grid: BlockGrid) -> bool:
    """Return whether the kernels can take these inputs and can be had here: ``routelab doctor`` says why not."""
    if limits(query, grid) is not None:
        return False
    try:
        load()
    except BackendError:
        return False
    return True


@torch.compiler.disable  # it takes addresses
def run(
    kernel: str, query: Tensor, key: Tensor, output: Tensor, grid: BlockGrid, scale: float, **others: Tensor
) -> None:
    """Run ``"attend"`` or ``"mass"`` into ``output``.

    Args:
        query, key, output: float32 with the last dimension contiguous.
        others: what the kernel reads besides, by its name in ``blocks.hpp``: ``value``, ``starts`` and ``blocks``, or
            ``lse`` and ``lengths``.
    """
    tensors = {"query": query, "key": key, "output": output, **others}
    strides = {f"{name}_strides": _Strides(*x.stride()[:3]) for name, x in tensors.items() if x.dim() == 4}
    problem = _Problem(
        **{name: x.data_ptr() for name, x in tensors.items()},
        **strides,
        batch=query.shape[0],
        heads=query.shape[1],
        groups=key.shape[1],
        queries=grid.queries,
        keys=grid.keys,
        dim=query.shape[3],
        block=grid.block_size,
        first_row=grid.first_row,
        query_blocks=grid.query_blocks,
        threads=torch.get_num_threads(),
        scale=scale * math.log2(math.e),
    )
    library, given = load(), ctypes.byref(problem)
    room = {}
    for part in ("packed", "space"):
        size = library[f"{kernel}_{part}"]
        size.restype = ctypes.c_int64
        room[part] = query.new_empty(size(given))
        setattr(problem, part, room[part].data_ptr())
    library[kernel](given)


class _Strides(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("batch", "head", "row"))


class _Problem(ctypes.Structure):
    """``Problem`` of ``blocks.hpp``, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("query", "key", "value", "lse", "output", "packed", "space")),
        *((name, ctypes.c_void_p) for name in ("starts", "lengths", "blocks")),
        *((f"{name}_strides", _Strides) for name in ("query", "key", "value", "output")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "groups", "queries", "keys", "dim")),
        *((name, ctypes.c_int64) for name in ("block", "first_row", "query_blocks", "threads")),
        ("scale", ctypes.c_float),
    )
