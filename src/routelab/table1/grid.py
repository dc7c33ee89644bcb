"""Many cells, several at a time: resumable, with time left, and no cell lost to another's failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from routelab.errors import ConfigError
from routelab.execution import Task, executor
from routelab.table1.cell import finished, run_cell
from routelab.table1.spec import CellSpec


def run_grid(
    specs: Sequence[CellSpec],
    workers: int,
    data_root: Path | None,
    out_dir: Path,
    *,
    resume: bool = True,
    console: Console | None = None,
    backend: str = "local",
) -> dict[str, Any]:
    """Run cells in the order given, ``workers`` at a time in processes of one thread; finished ones are only read.

    ``backend`` is where the processes are: see :func:`routelab.execution.executor`.

    Progress with time left is shown on a terminal; elsewhere each finished cell is one line.

    Returns:
        Plain data: ``cells`` (results in the order of ``specs``), ``failed`` (``{"cell", "error"}``), ``planned``,
        ``seconds``.

    Raises:
        ConfigError: no cells, or fewer than one worker. BackendError, MissingPackageError: no such backend here.
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
    todo = {spec.name: spec for spec in specs if spec not in results}
    failed: dict[CellSpec, str] = {}
    run = executor(backend, workers, 1)
    tasks = [Task(name, run_cell, (spec, data_root, out_dir.resolve(), True)) for name, spec in todo.items()]
    with _progress(console or Console(stderr=True), list(todo.values())) as tell:
        for outcome in run(tasks) if tasks else ():
            spec = todo[outcome.name]
            if outcome.error is not None:
                failed[spec] = outcome.error
                tell(spec, f"failed, {outcome.error}")
            else:
                results[spec] = outcome.value
                tell(spec, f"accuracy {outcome.value['accuracy']:.1%}, {outcome.value['seconds']:.0f} s")
    return {
        "cells": [results[spec] for spec in specs if spec in results],
        "failed": [{"cell": spec.name, "error": failed[spec]} for spec in specs if spec in failed],
        "planned": len(specs),
        "seconds": time.perf_counter() - started,
    }


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
