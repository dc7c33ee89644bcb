"""C++ kernels for CPUs: compiled by the machine's own compiler when first used, kept, and called through ctypes.

Plain C++17 with the vector types of GCC and Clang, without headers or libraries of torch, so that a compilation takes
about two seconds and the result depends on the source, the compiler and the processor alone: these name the file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import torch

from routelab.errors import BackendError

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-pthread")
#: What torch finds in the processor, as the compiler calls it. Others are compiled for the machine's base set.
_VECTORS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx512f", "-mfma")}


def compiler() -> str | None:
    """Return the path of the C++ compiler: ``$CXX``, or the first of ``c++``, ``g++`` and ``clang++``."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else _COMPILERS
    return next((path for name in wanted if (path := shutil.which(name))), None)


@cache
def load(name: str) -> ctypes.CDLL:
    """Return the library of ``<name>.cpp`` in this folder, compiling it unless that was done before.

    It is kept below ``$XDG_CACHE_HOME``, or ``~/.cache``, in ``routelab``.

    Raises:
        BackendError: no compiler, one that fails, or no place to keep the library.
    """
    command = compiler()
    if command is None:
        raise BackendError(f"needs a C++ compiler: none of $CXX, {', '.join(_COMPILERS)} is on the path")
    source = Path(__file__).with_name(f"{name}.cpp")
    flags = (*_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ()))
    try:
        version = subprocess.run([command, "--version"], capture_output=True, check=True).stdout
        parts = (source.read_bytes(), " ".join(flags).encode(), version, platform.machine().encode())
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
        library = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "routelab", f"{name}-{digest}.so")
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            # Under the process's own name first: others may be compiling the same.
            temporary = library.with_name(f"{library.name}.{os.getpid()}")
            subprocess.run([command, *flags, str(source), "-o", str(temporary)], capture_output=True, check=True)
            os.replace(temporary, library)
        return ctypes.CDLL(str(library))
    except subprocess.CalledProcessError as error:
        raise BackendError(
            f"{command} fails on {source.name}: {error.stderr.decode(errors='replace')[:500]}"
        ) from error
    except (OSError, RuntimeError) as error:  # RuntimeError: a user without a home
        raise BackendError(f"{source.name} cannot be compiled and kept: {error}; set XDG_CACHE_HOME") from error


def works(name: str) -> bool:
    """Return whether :func:`load` gives the library. ``routelab doctor`` says why not."""
    try:
        load(name)
    except BackendError:
        return False
    return True
