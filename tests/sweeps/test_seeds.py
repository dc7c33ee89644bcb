"""A sweep of seeds says what one run of them says, and outlives a worker that is killed in training."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import EvaluationError, RecipeError, TrainingError
from routelab.execution import executor
from routelab.recipe import Recipe
from routelab.run import run_recipe
from routelab.rundir import RunDirectory, read_json, write_json
from routelab.sweeps.cells import Cell, seed_cells
from routelab.sweeps.run import by_workers, folder_of, run_sweep
from routelab.sweeps.seeds import collect_seeds

SEEDS = (3, 1)
#: What a machine decides, not the seed.
CHANGING = {"seconds", "peak_memory_mb", "tokens_per_second"}


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: steady(each) for key, each in value.items() if key not in CHANGING}
    return [steady(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def cells(recipe: Recipe) -> list[Cell]:
    return seed_cells(recipe, SEEDS)


@pytest.fixture(scope="module")
def swept(cells: list[Cell], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    assert run_sweep(cells, folder, command="c") == {}
    return folder


def test_cells_are_the_recipe_of_one_seed(cells: list[Cell], recipe: Recipe) -> None:
    assert [(cell.name, cell.point, cell.recipe.seeds) for cell in cells] == [
        ("seed-3", {"seed": 3}, (3,)),
        ("seed-1", {"seed": 1}, (1,)),
    ]
    assert replace(cells[0].recipe, name=recipe.name, seeds=recipe.seeds) == recipe
    with pytest.raises(RecipeError, match="names a cell twice: seed-1, seed-1"):
        seed_cells(recipe, [1, 1])
    with pytest.raises(RecipeError, match=r"tiny: seeds.0: Input should be greater than or equal to 0"):
        seed_cells(recipe, [-1])
    with pytest.raises(RecipeError, match="nothing to sweep"):
        seed_cells(recipe, [])


def test_numbers_are_those_of_one_run(swept: Path, cells: list[Cell], recipe: Recipe, tmp_path: Path) -> None:
    both = replace(recipe, seeds=SEEDS)
    whole = RunDirectory.open(tmp_path / "whole", both, resume=False)
    run_recipe(both, whole, command="c")
    wanted, found = read_json(whole.results), collect_seeds(recipe, cells, swept, {})
    assert json.loads(json.dumps(found)) == found
    for key in ("host", "control", "seeds", "tasks", "base", "arms", "comparisons", "alignment", "same_batches"):
        assert steady(found[key]) == steady(wanted[key]), key
    (row,) = found["comparisons"]
    assert (row["covers"], list(row["seeds"])) == ("examples and seeds", ["3", "1"])
    assert (found["failed"], found["planned"]) == ([], 2)


def test_a_failed_seed_is_listed_and_does_not_count(swept: Path, cells: list[Cell], recipe: Recipe) -> None:
    found = collect_seeds(recipe, cells, swept, {"seed-3": "OSError: full"})
    assert (found["seeds"], found["planned"]) == ([1], 2)
    assert found["failed"] == [{"cell": "seed-3", "error": "OSError: full"}]
    assert found["comparisons"][0]["covers"] == "examples"
    with pytest.raises(TrainingError, match="no seed of the sweep is finished: seed-3: OSError: full"):
        collect_seeds(recipe, cells, swept, dict.fromkeys(("seed-3", "seed-1"), "OSError: full"))


@pytest.mark.parametrize("origin", ["host", "data"])
def test_seeds_of_other_hosts_or_data_are_refused(swept: Path, cells: list[Cell], recipe: Recipe, origin: str) -> None:
    path = RunDirectory(folder_of(swept, "seed-1")).manifest
    kept = read_json(path)
    name = sorted(kept[origin])[0]
    write_json(path, kept | {origin: kept[origin] | {name: "other"}})
    try:
        with pytest.raises(EvaluationError, match=f"seed-3 and seed-1 of .* have other {origin}: {name}"):
            collect_seeds(recipe, cells, swept, {})
    finally:
        write_json(path, kept)


def test_a_worker_killed_in_training_goes_on_from_its_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    """The worker that trains the second seed is killed by SIGKILL: its cell goes on, the first is left alone."""
    alone = replace(
        recipe,
        arms={recipe.control: recipe.arms[recipe.control]},
        train=replace(recipe.train, steps=30, save_every=3),
    )
    cells = seed_cells(alone, [0, 1])
    first, second = (RunDirectory(folder_of(tmp_path, cell.name)) for cell in cells)
    assert run_sweep(cells[:1], tmp_path, command="c") == {}
    finished = first.results.stat().st_mtime_ns
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if any(second.checkpoints(recipe.control, 1).glob("checkpoint-*")):
                (worker,) = multiprocessing.active_children()
                assert worker.pid is not None
                killed.append(worker.pid)
                os.kill(worker.pid, signal.SIGKILL)
                return
            time.sleep(0.005)

    watcher = threading.Thread(target=kill)
    watcher.start()
    failed = run_sweep(cells, tmp_path, command="c", execute=by_workers(executor("local", 1, 1)))
    watcher.join()
    assert (failed, len(killed)) == ({}, 1)
    assert first.results.stat().st_mtime_ns == finished
    sessions = [len(read_json(run.manifest)["sessions"]) for run in (first, second)]
    assert sessions == [1, 2]
    trained = read_json(second.trained(recipe.control, 1))["train"]
    assert 0 < trained["resumed_from"] < trained["steps"] == 30
    assert collect_seeds(alone, cells, tmp_path, failed)["seeds"] == [0, 1]
