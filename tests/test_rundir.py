"""A run directory is created once, continued on request by the same recipe only, and written atomically."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from routelab.errors import RecipeError
from routelab.recipe import Recipe, load_recipe
from routelab.rundir import RunDirectory, read_json, read_jsonl, write_json


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe("mini/aar")


def test_new_directory_holds_the_resolved_recipe(tmp_path: Path, recipe: Recipe) -> None:
    run = RunDirectory.open(tmp_path / "run", recipe, resume=False)
    assert load_recipe(run.recipe) == recipe


def test_existing_run_needs_resume(tmp_path: Path, recipe: Recipe) -> None:
    RunDirectory.open(tmp_path / "run", recipe, resume=False)
    with pytest.raises(RecipeError, match="continue it with --resume"):
        RunDirectory.open(tmp_path / "run", recipe, resume=False)
    RunDirectory.open(tmp_path / "run", recipe, resume=True)


def test_two_commands_do_not_run_in_one_directory(tmp_path: Path, recipe: Recipe) -> None:
    run = RunDirectory.open(tmp_path / "run", recipe, resume=False)
    held = "with RunDirectory(Path(sys.argv[1])).held(): print('held')"
    other = [
        sys.executable,
        "-c",
        f"import sys; from pathlib import Path; from routelab.rundir import RunDirectory\n{held}",
    ]
    with run.held():
        refused = subprocess.run([*other, str(run.path)], capture_output=True, text=True, check=False)
    assert "another command is running in" in refused.stderr
    assert subprocess.check_output([*other, str(run.path)], text=True) == "held\n"


def test_resume_with_another_recipe_names_the_first_difference(tmp_path: Path, recipe: Recipe) -> None:
    RunDirectory.open(tmp_path / "run", recipe, resume=False)
    other = load_recipe("mini/aar", ["train.learning_rate=0.5", "title=other"])
    with pytest.raises(RecipeError, match=r"another recipe: train\.learning_rate \(\S+ there, 0\.5 now\)"):
        RunDirectory.open(tmp_path / "run", other, resume=True)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path, recipe: Recipe) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(RecipeError, match="is not a run directory"):
        RunDirectory.open(tmp_path, recipe, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("place", ["file", "file/run", "/proc/routelab-run"])
def test_a_place_that_cannot_be_a_directory_is_named(tmp_path: Path, recipe: Recipe, place: str) -> None:
    (tmp_path / "file").write_text("a file", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"cannot be a run directory: .*; choose another with --out"):
        RunDirectory.open(tmp_path / place, recipe, resume=False)


@pytest.mark.parametrize("content", [b"name: [", b"\xff"])
def test_damaged_recipe_of_a_run_is_named(tmp_path: Path, recipe: Recipe, content: bytes) -> None:
    run = RunDirectory.open(tmp_path / "run", recipe, resume=False)
    run.recipe.write_bytes(content)
    with pytest.raises(RecipeError, match=r"recipe\.yaml"):
        RunDirectory.open(tmp_path / "run", recipe, resume=True)


def test_damaged_json_is_named(tmp_path: Path) -> None:
    for content in ("", '{"cut'):
        (tmp_path / "train.json").write_text(content, encoding="utf-8")
        with pytest.raises(RecipeError, match=r"train\.json is missing or damaged"):
            read_json(tmp_path / "train.json")


def test_json_is_whole_or_absent(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(run.results, {"loss": float("nan")})
    assert not run.results.exists()
    write_json(run.results, {"loss": 1.0})
    assert json.loads(run.results.read_text(encoding="utf-8")) == {"loss": 1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_metrics_are_gathered_from_the_finished_trainings(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for seed in (0, 1):
        write_json(run.trained("aar", seed), {"train": {"history": [{"step": 1, "loss": 2.0 + seed}]}})
    run.write_metrics([("aar", 0), ("aar", 1)])
    run.write_metrics([("aar", 0), ("aar", 1)])
    assert read_jsonl(run.metrics) == [
        {"arm": "aar", "seed": 0, "step": 1, "loss": 2.0},
        {"arm": "aar", "seed": 1, "step": 1, "loss": 3.0},
    ]
