"""What is installed here, and which fast paths can be used, with the reason where one cannot."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable

from routelab.errors import BackendError, MissingPackageError, RoutelabError
from routelab.manifest import hardware, versions


def environment() -> list[tuple[str, str]]:
    """Return versions, processor, threads, compiler and data folder as names with text."""
    found = hardware()
    memory = found["memory_bytes"]
    return [
        *versions().items(),
        ("system", found["system"]),
        ("processor", found["processor"]),
        ("cores, threads", f"{found['cores']} usable cores, torch uses {found['threads']} threads"),
        ("memory", "unknown" if memory is None else f"{memory / 2**30:.1f} GiB"),
        ("accelerator", found["accelerator"] or "none"),
        ("compiler", _compiler()),
        ("ROUTELAB_DATA", os.environ.get("ROUTELAB_DATA", "not set: recipes that read real data will name it")),
    ]


def fast_paths() -> list[tuple[str, str]]:
    """Return every fast path with ``yes``, or the reason why it cannot be used here."""
    paths: list[tuple[str, Callable[[], None]]] = [
        ("window attention on log-sum-exp, forward and backward", _try_window),
        ("working-set attention on the CPU in float32", _try_native),
        ("bfloat16 matrix products", _try_bfloat16),
        ("grouped expert matrix products", _try_grouped),
        ("torch.compile", _try_compile),
        ("CUDA", _try_cuda),
        ("Triton", _try_triton),
    ]
    return [(name, _outcome(attempt)) for name, attempt in paths]


def _outcome(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except (RuntimeError, ImportError, OSError, RoutelabError) as error:
        reason = str(error).strip().splitlines()
        return f"no: {reason[0] if reason else type(error).__name__}"
    return "yes"


def _try_window() -> None:
    import torch

    from routelab.ops.window import window_attention

    device = "cuda" if torch.cuda.is_available() else "cpu"
    query, key, value = (torch.randn(1, 2, 64, 64, device=device, requires_grad=True) for _ in range(3))
    output, window = window_attention(query, key, value, 8, backend="auto")
    (output.sum() + window.sum()).backward()


def _try_native() -> None:
    from routelab.ops import native

    native.load()


def _try_bfloat16() -> None:
    import torch

    if torch.cuda.is_available():
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            raise BackendError("this accelerator only emulates bfloat16")
        return
    flags = torch.backends.cpu.get_cpu_capability()
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        raise BackendError(f"works, but without bfloat16 instructions in this processor ({flags}): float32 is as fast")


def _try_grouped() -> None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, weights = torch.randn(8, 16, device=device).bfloat16(), torch.randn(2, 16, 16, device=device).bfloat16()
    torch._grouped_mm(rows, weights, offs=torch.tensor([4, 8], dtype=torch.int32, device=device))


def _try_compile() -> None:
    import torch

    from routelab.ops.native import compiler

    # A first compilation takes a minute or more, so this one is only checked for what it needs.
    if not torch.cuda.is_available() and not compiler():
        raise BackendError("needs a C++ compiler on the CPU; none of c++, g++, clang++ is on the path")


def _try_cuda() -> None:
    import torch

    if not torch.version.cuda:
        raise BackendError("this build of torch has no CUDA")
    if not torch.cuda.is_available():
        raise BackendError("no usable NVIDIA device")


def _try_triton() -> None:
    if importlib.util.find_spec("triton") is None:
        raise MissingPackageError("the package triton is not installed")

    if not os.environ.get("TRITON_INTERPRET"):
        _try_cuda()


def _compiler() -> str:
    from routelab.ops.native import compiler

    command = compiler()
    if command is None:
        return "none found (c++, g++, clang++)"
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.splitlines()[0] if done.stdout else command[0]
