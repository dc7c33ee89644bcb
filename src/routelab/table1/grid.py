"""Many cells in worker processes: resumable, with time left, and no cell lost to another's failure."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from routelab.errors import ConfigError, RoutelabError
from routelab.table1.cell import finished, run_cell
from routelab.table1.spec import CellSpec

#: How often a pool whose worker was killed is started again before its unfinished cells count as failed.
RESTARTS = 3


def run_grid(
    specs: Sequence[CellSpec],
    workers: int,
    data_root: Path | None,
    out_dir: Path,
    *,
    resume: bool = True,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run cells in the order given, ``workers`` at a time in processes of one thread; finished ones are only read.

    Progress with time left is shown on a terminal; elsewhere each finished cell is one line.

    Returns:
        Plain data: ``cells`` (results in the order of ``specs``), ``failed`` (``{"cell", "error"}``), ``planned``,
        ``seconds``.

    Raises:
        ConfigError: no cells, or fewer than one worker.
        RecipeError: a finished cell is there without ``resume``, is damaged, or has other settings. Nothing has run.
    """
    if not specs or workers < 1:
        raise ConfigError(f"a grid needs a cell and a worker at least, got {len(specs)} and {workers}")
    started = time.perf_counter()
    out_dir.mkdir(parents=True, exist_ok=True)
    results: dict[CellSpec, dict[str, Any]] = {}
    for spec in specs:
        path = out_dir / f"{spec.name}.json"
        if path.exists():
            results[spec] = finished(path, spec) if resume else run_cell(spec, data_root, out_dir)
    todo = [spec for spec in specs if spec not in results]
    failed: dict[CellSpec, str] = {}
    with _progress(console or Console(stderr=True), todo) as tell:
        for spec, outcome in _outcomes(todo, workers, data_root, out_dir):
            if isinstance(outcome, BaseException):
                failed[spec] = f"{type(outcome).__name__}: {outcome}"
                tell(spec, f"failed, {failed[spec]}")
            else:
                results[spec] = outcome
                tell(spec, f"accuracy {outcome['accuracy']:.1%}, {outcome['seconds']:.0f} s")
    return {
        "cells": [results[spec] for spec in specs if spec in results],
        "failed": [{"cell": spec.name, "error": failed[spec]} for spec in specs if spec in failed],
        "planned": len(specs),
        "seconds": time.perf_counter() - started,
    }


def _outcomes(
    specs: Sequence[CellSpec], workers: int, data_root: Path | None, out_dir: Path
) -> Iterator[tuple[CellSpec, dict[str, Any] | BaseException]]:
    """Yield the result or the error of every cell as it comes.

    A worker that is killed takes its pool with it, and the pool does not tell which cell it was. So a new pool gets
    all that are not finished, a few times.
    """
    todo = list(specs)
    for attempt in range(RESTARTS + 1):
        broken: BrokenProcessPool | None = None
        left: list[CellSpec] = []
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
        try:
            futures: dict[Future[dict[str, Any]], CellSpec] = {}
            for spec in todo:
                try:
                    futures[pool.submit(run_cell, spec, data_root, out_dir, resume=True)] = spec
                except BrokenProcessPool as error:
                    broken, left = error, [*left, spec]
            for future in as_completed(futures):
                try:
                    outcome: dict[str, Any] | BaseException = future.result()
                except BrokenProcessPool as error:
                    broken, left = error, [*left, futures[future]]
                    continue
                except (RoutelabError, RuntimeError, MemoryError, OSError) as error:
                    outcome = error
                yield futures[future], outcome
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if broken is None:
            return
        todo = [spec for spec in todo if spec in set(left)]
        if attempt == RESTARTS:
            for spec in todo:
                yield spec, broken


def _start_worker() -> None:
    """Compute in one thread, and end with the parent, which may be killed without a word to its workers."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _progress(console: Console, specs: Sequence[CellSpec]) -> Iterator[Callable[[CellSpec, str], None]]:
    """Show a bar in units of expected time on a terminal, and lines elsewhere."""
    if not console.is_terminal:
        yield lambda spec, text: console.print(f"{spec.name}: {text}", highlight=False, soft_wrap=True)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} of {task.fields[cells]} cells"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, speed_estimate_period=1800) as progress:
        total = sum(spec.cost for spec in specs)
        bar = progress.add_task("table 1", total=total, done=0, cells=len(specs))
        done = iter(range(1, len(specs) + 1))

        def tell(spec: CellSpec, text: str) -> None:
            progress.console.print(f"{spec.name}: {text}", highlight=False)
            progress.update(bar, advance=spec.cost, done=next(done))

        yield tell
