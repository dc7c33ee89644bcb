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
import shlex
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from routelab.errors import BackendError, ConfigError
from routelab.ops.block_grid import BlockGrid

#: Keys that the kernels handle together, as in ``blocks.hpp``.
PANEL = 16

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread")
#: What torch finds in the processor, as the compiler calls it. Others are compiled for the machine's base set.
_VECTORS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx512f", "-mfma")}
_INTEGERS = {"starts": torch.int64, "lengths": torch.int64, "blocks": torch.int32}
_LOCK = threading.Lock()


def compiler() -> list[str] | None:
    """Return the command of the C++ compiler: ``$CXX``, which may have arguments, or the first of ``c++``, ``g++`` and
    ``clang++``; None where it is not on the path."""
    wanted = [shlex.split(os.environ["CXX"])] if os.environ.get("CXX") else [[name] for name in _COMPILERS]
    return next(([path, *rest] for name, *rest in filter(None, wanted) if (path := shutil.which(name))), None)


def load() -> ctypes.CDLL:
    """Return the library of this folder's C++ files, compiling them unless that was done before.

    It is kept below ``$XDG_CACHE_HOME``, or ``~/.cache``, in ``routelab``. A process tries once.

    Raises:
        BackendError: no compiler, one that fails, or no place to keep the library.
    """
    with _LOCK:
        found = _library()
    if isinstance(found, str):
        raise BackendError(found)
    return found


@cache
def _library() -> ctypes.CDLL | str:
    """Return the library, or the reason why there is none."""
    command = compiler()
    if command is None:
        named = f"$CXX, which is {os.environ['CXX']!r}, is" if os.environ.get("CXX") else "c++, g++, clang++: none is"
        return f"needs a C++ compiler: {named} on the path"
    folder = Path(__file__).parent
    sources, headers = sorted(folder.glob("*.cpp")), sorted(folder.glob("*.hpp"))
    build = [*command, *_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ())]
    try:
        version = subprocess.run([*command, "--version"], capture_output=True, check=True).stdout
        parts = (*(file.read_bytes() for file in (*sources, *headers)), version, " ".join(build).encode())
        kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "routelab")
        name = f"blocks-{_digest(*parts, platform.machine().encode())}"
        for library in kept.glob(f"{name}-*.so"):
            # A damaged library would end the process, so its own digest is in its name.
            if library.stem == f"{name}-{_digest(library.read_bytes())}":
                return ctypes.CDLL(str(library))
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as place:
            made = Path(place, "blocks.so")
            subprocess.run([*build, *map(str, sources), "-o", str(made)], capture_output=True, check=True)
            library = kept / f"{name}-{_digest(made.read_bytes())}.so"
            os.replace(made, library)
        return ctypes.CDLL(str(library))
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").strip()[:500] or f"it ended with {error.returncode}"
        return f"{command[0]} fails on the kernels in {folder.name}: {told}"
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        return f"the kernels cannot be compiled and kept: {error}; set XDG_CACHE_HOME"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def limits(query: Tensor, grid: BlockGrid) -> str | None:
    """Why the kernels cannot take these inputs, or None."""
    if query.device.type != "cpu" or query.dtype != torch.float32:
        return f"it is for float32 on a CPU, got {query.dtype} on {query.device.type}"
    if grid.rows_per_block != grid.block_size:
        return "it has no row for every token"
    if grid.block_size % PANEL:
        return f"blocks must hold a multiple of {PANEL} positions, got {grid.block_size}"
    return None


@torch.compiler.disable  # it may compile
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
        query, key, output: float32.
        others: what the kernel reads besides, by its name in ``blocks.hpp``: ``value``, ``starts`` and ``blocks``, or
            ``lse`` and ``lengths``.

    Raises:
        ConfigError: a tensor is not where or what the kernel takes it to be.
    """
    tensors = {"query": query, "key": key, "output": output, **others}
    for name, x in tensors.items():
        wanted = _INTEGERS.get(name, torch.float32)
        if x.device.type != "cpu" or x.dtype != wanted:
            raise ConfigError(f"the native kernels read {name} as {wanted} on a CPU, got {x.dtype} on {x.device}")
    tensors = {name: _addressable(x) for name, x in tensors.items()}
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
        block=min(grid.block_size, -(-grid.keys // PANEL) * PANEL),
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


def _addressable(x: Tensor) -> Tensor:
    """Numbers that can be read where they lie, the last dimension without gaps."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 else x.contiguous()


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
