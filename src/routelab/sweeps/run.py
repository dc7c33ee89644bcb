"""Run the cells of a sweep in folders of their own: resumable, and no cell lost to another's failure.

DIRECTORY/cells/<cell>/      a run directory like any other
DIRECTORY/results.json       what all finished cells say together
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from routelab import execution
from routelab.execution.tasks import attempt
from routelab.recipe import Recipe
from routelab.run import run_recipe
from routelab.rundir import BASE, RunDirectory
from routelab.sweeps.cells import CONTROL, Cell


@dataclass(frozen=True)
class Job:
    """One cell to run: plain enough to be sent to another process.

    ``base`` holds the host's own records, where they are known already; ``command`` goes into the manifest.
    """

    name: str
    recipe: Recipe
    folder: Path
    base: Path | None
    command: str


#: Runs jobs, in any order, and yields the name of each that has ended and what went wrong, or None.
Execute = Callable[[Sequence[Job]], Iterable[tuple[str, str | None]]]


def run_job(job: Job) -> None:
    """Run one cell, or what is missing of it.

    Raises:
        RecipeError: its folder holds another recipe. Everything else that a run raises.
    """
    run = RunDirectory.open(job.folder, job.recipe, resume=job.folder.exists())
    with run.held():
        _run_in(run, job)


def _run_in(run: RunDirectory, job: Job) -> None:
    if run.results.is_file() and run.report.is_file():
        return
    target = run.path / "records" / BASE
    if job.base is not None and not target.exists():
        # The host is measured once: every cell starts from the same one and is evaluated on the same tasks.
        temporary = target.with_name(f"{BASE}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(job.base, temporary)
        os.replace(temporary, target)
    run_recipe(job.recipe, run, command=job.command)


def one_by_one(jobs: Sequence[Job]) -> Iterator[tuple[str, str | None]]:
    """Run jobs in this process, in order."""
    for job in jobs:
        _, error = attempt(run_job, (job,))
        yield job.name, error


def by_workers(execute: execution.Execute) -> Execute:
    """Run jobs as tasks in other processes."""

    def run(jobs: Sequence[Job]) -> Iterator[tuple[str, str | None]]:
        for outcome in execute([execution.Task(job.name, run_job, (job,)) for job in jobs]):
            yield outcome.name, outcome.error

    return run


def run_sweep(
    cells: Sequence[Cell],
    folder: Path,
    *,
    command: str,
    execute: Execute = one_by_one,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, str]:
    """Run every cell that is not finished, and return the errors of those that failed, by name.

    The control, where there is one, runs first. Finished cells are left as they are; one that was cut off goes on from
    its checkpoint.
    """
    folder = folder.resolve()  # a worker may be elsewhere
    base = folder_of(folder, CONTROL) / "records" / BASE
    failed: dict[str, str] = {}
    for group in ([cell for cell in cells if cell.name == CONTROL], [cell for cell in cells if cell.name != CONTROL]):
        if not group:
            continue
        known = base if base.is_dir() and CONTROL not in failed and group[0].name != CONTROL else None
        jobs = [Job(cell.name, cell.recipe, folder_of(folder, cell.name), known, command) for cell in group]
        for number, (name, error) in enumerate(execute(jobs), start=1):
            say(f"{name}: {'done' if error is None else error} ({number} of {len(jobs)})")
            if error is not None:
                failed[name] = error
    return failed


def folder_of(folder: Path, name: str) -> Path:
    """Return the run directory of a cell."""
    return folder / "cells" / name
