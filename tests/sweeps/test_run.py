"""A sweep from end to end on a tiny host: failed cells lose nothing, finished ones are not run again."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from routelab.errors import RecipeError, TrainingError
from routelab.evaluate.evaluation import read_scores
from routelab.evaluate.stats import paired_bootstrap
from routelab.recipe import Recipe
from routelab.run import run_recipe
from routelab.rundir import read_json
from routelab.sweeps import collect
from routelab.sweeps import run as sweeping
from routelab.sweeps.cells import CONTROL, Cell, depth_cells
from routelab.sweeps.collect import collect_sweep
from routelab.sweeps.run import folder_of, run_sweep


@pytest.fixture(scope="module")
def cells(recipe: Recipe) -> list[Cell]:
    return depth_cells(recipe, [0, 1], starts=[0, 1], singles=[])


@pytest.fixture(scope="module")
def swept(cells: list[Cell], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep of which one cell fails the first time."""
    folder = tmp_path_factory.mktemp("sweep")
    begun: list[str] = []

    def one_fails(recipe: Recipe, run: Any, *, command: str) -> Any:
        begun.append(run.path.name)
        if run.path.name == "from-00" and begun.count("from-00") == 1:
            raise RuntimeError("no memory left")
        return run_recipe(recipe, run, command=command)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "run_recipe", one_fails)
        failed = run_sweep(cells, folder, command="c")
        again = run_sweep(cells, folder, command="c")
    return {"folder": folder, "failed": failed, "again": again, "begun": begun}


def test_a_failed_cell_loses_nothing_and_is_run_again(swept: dict[str, Any]) -> None:
    assert swept["failed"] == {"from-00": "RuntimeError: no memory left"}
    assert swept["again"] == {}
    assert swept["begun"] == [CONTROL, "from-00", "from-01", "from-00"]


def test_the_host_is_measured_once(swept: dict[str, Any]) -> None:
    stages = {
        name: read_json(folder_of(swept["folder"], name) / "manifest.json")["stages"] for name in (CONTROL, "from-01")
    }
    assert any(stage["arm"] == "base" for stage in stages[CONTROL])
    assert not any(stage["arm"] == "base" for stage in stages["from-01"])
    first, second = (folder_of(swept["folder"], name) / "records" / "base" for name in (CONTROL, "from-01"))
    assert (first / "mini-facts.jsonl").read_bytes() == (second / "mini-facts.jsonl").read_bytes()


def test_numbers_are_those_of_the_records(swept: dict[str, Any], recipe: Recipe, cells: list[Cell]) -> None:
    found = collect_sweep("depth", recipe, cells, swept["folder"], {})
    assert json.loads(json.dumps(found)) == found
    assert [point["name"] for point in found["points"]] == ["from-00", "from-01"]
    records = folder_of(swept["folder"], "from-01") / "records" / "aar" / "seed-0" / "mini-facts.jsonl"
    control = folder_of(swept["folder"], CONTROL) / "records" / "routing-only" / "seed-0" / "mini-facts.jsonl"
    ours, theirs = read_scores(records), read_scores(control)
    task = found["points"][1]["tasks"]["mini-facts"]
    assert (task["mean"], task["sd"], task["seeds"]) == (fmean(ours.values()), None, [fmean(ours.values())])
    assert found["control"]["mini-facts"]["mean"] == fmean(theirs.values())
    wanted = paired_bootstrap(ours, theirs, resamples=2000)
    assert (task["difference"]["mean"], task["difference"]["low"]) == (wanted.mean, wanted.low)
    assert found["planned"] == 3


def test_another_recipe_in_the_same_folder_fails_that_cell_alone(
    swept: dict[str, Any], recipe: Recipe, cells: list[Cell]
) -> None:
    import dataclasses

    changed = [dataclasses.replace(cells[1], recipe=dataclasses.replace(cells[1].recipe, title="other"))]
    failed = run_sweep([cells[0], *changed], swept["folder"], command="c")
    assert list(failed) == ["from-00"]
    assert "holds a run of another recipe" in failed["from-00"]
    assert RecipeError.__name__ in failed["from-00"]


def test_without_its_control_a_sweep_says_why(recipe: Recipe, cells: list[Cell], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="control of the sweep is not finished: OSError: full"):
        collect_sweep("depth", recipe, cells, tmp_path, {CONTROL: "OSError: full"})


def test_subject_groups_of_mmlu(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = ["college_biology", "college_biology", "abstract_algebra", "high_school_statistics", "marketing"]
    monkeypatch.setattr(collect, "split_rows", lambda path, split: [{"subject": each} for each in subjects])
    from routelab.recipe import TaskSpec

    groups = collect._groups(TaskSpec("mmlu"))
    assert groups["mmlu-test-3"] == "math"
    assert collect._groups(TaskSpec("gsm8k")) == {}
    ours, theirs = (
        [{f"mmlu-test-{i}": score for i, score in enumerate(row)}] for row in ([1, 1, 0, 1, 1], [0, 1, 0, 0, 1])
    )
    found = collect._by_group(ours, theirs, groups)
    # One question of a group says nothing about it.
    assert list(found) == ["math", "biology"]
    assert (found["math"]["mean"], found["math"]["control"], found["math"]["n"]) == (0.5, 0.0, 2)
    assert found["biology"]["difference"]["mean"] == 0.5
