"""Times as ratios within one process, and peak memory as the allocator saw it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def interleaved(contenders: Mapping[str, Callable[[], object]], passes: int, device: str) -> dict[str, list[float]]:
    """Seconds of every contender in every pass.

    A pass runs all contenders one after the other, each pass starting with the next of them, so that slow phases
    of the machine and what the predecessor left in the caches are shared out evenly. One untimed run each before.
    """
    clock = _clock(device)
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for run in contenders.values():
        run()
    for turn in range(passes):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            _synchronize(device)
            start = clock()
            contenders[name]()
            _synchronize(device)
            seconds[name].append(clock() - start)
    return seconds


def summary(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, median, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": median, "q25": low, "q75": high}


def ratios(seconds: Mapping[str, list[float]], base: str) -> dict[str, dict[str, float]]:
    """Every contender's time over that of ``base`` in the same pass: median and quartiles."""
    return {
        name: summary([own / other for own, other in zip(values, seconds[base], strict=True)])
        for name, values in seconds.items()
        if name != base
    }


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """Highest sum of live allocations during ``run``, above what was allocated before; results included.

    On the CPU the sum over the allocation events that the profiler records, kernels' own scratch memory among them.
    """
    run()
    if device != "cpu":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        with _without_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = run()
        profiler.export_chrome_trace(str(trace))
        del result
        events: list[dict[str, Any]] = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    live = peak = 0
    for _, change in changes:
        live += change
        peak = max(peak, live)
    return peak


def _clock(device: str) -> Callable[[], float]:
    """Wall time; on the CPU with one thread its processor time, which other load on the machine does not lengthen."""
    return time.process_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def environment(device: str) -> dict[str, str | int]:
    """What a reader of the numbers needs to know about the machine."""
    name = torch.cuda.get_device_name() if device != "cpu" else torch.backends.cpu.get_cpu_capability()
    return {
        "torch": torch.__version__,
        "device": f"{device} ({name})",
        "threads": torch.get_num_threads(),
        "clock": _clock(device).__name__,
    }


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


@contextmanager
def _without_stderr() -> Iterator[None]:
    """The profiler announces its start and end on the file descriptor itself."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
