"""Run a Table 1 recipe in a run directory: every cell a file, results and report after each invocation."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from routelab.data.sources import data_root
from routelab.errors import TrainingError
from routelab.manifest import Manifest
from routelab.recipe.table1 import Table1Recipe
from routelab.report.html import report_run
from routelab.report.page import Page
from routelab.rundir import RunDirectory, write_json
from routelab.table1.cell import finished
from routelab.table1.grid import run_grid
from routelab.table1.spec import CellSpec


def run_table1(
    recipe: Table1Recipe,
    run: RunDirectory,
    *,
    command: str,
    only: Sequence[CellSpec] | None = None,
    console: Console | None = None,
    backend: str = "local",
) -> Page:
    """Run the cells of a recipe, or ``only`` some of them, write the report of all that are finished, return its page.

    Raises:
        TrainingError: no cell is finished; the message has the first error.
    """
    manifest = Manifest(run, recipe, command)
    folder = run.path / "cells"
    wanted = recipe.cells if only is None else list(only)
    root = data_root() if os.environ.get("ROUTELAB_DATA") else None
    with manifest.stage("cells", cells=len(wanted)):
        outcome = run_grid(wanted, recipe.workers, root, folder, console=console, backend=backend)
    done = [finished(path, cell) for cell in recipe.cells if (path := folder / f"{cell.name}.json").is_file()]
    if not done:
        raise TrainingError(f"no cell is finished: {outcome['failed'][0]['cell']}: {outcome['failed'][0]['error']}")
    for cell in done:
        manifest.record("data", f"{cell['source']}, {cell['tasks']} tasks, seed {cell['seed']}", _data(cell))
    again = shlex.join(["routelab", "run", str(run.recipe), "--out", f"{run.path}-again"])
    cell = done[0]
    one = f"{again} --cell tasks={cell['tasks']},experts={cell['experts']},loss={cell['loss']},seed={cell['seed']}"
    write_json(
        run.results,
        {
            "schema": 1,
            "kind": "table1",
            "name": recipe.name,
            "title": recipe.title,
            "note": recipe.note,
            "seeds": list(recipe.seeds),
            "planned": len(recipe.cells),
            "cells": done,
            "failed": outcome["failed"],
            "settings": {key: value for key, value in cell["spec"].items() if key not in _PER_CELL},
            "commands": [
                ["The whole table, into a new directory", again],
                ["One cell", one],
                ["Tables, figures and this page from results.json", shlex.join(["routelab", "report", str(run.path)])],
            ],
        },
    )
    manifest.close()
    page, _ = report_run(Path(run.path))
    return page


_PER_CELL = frozenset({"tasks", "experts", "loss", "seed", "coefficient"})


def _data(cell: dict[str, object]) -> dict[str, object]:
    sentences = cell["sentences"]
    assert isinstance(sentences, dict)
    return {"rows": sum(sentences.values()), "sha256": cell["data_sha256"]}
