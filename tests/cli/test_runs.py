"""``routelab report`` of several runs, and the list of recipes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from routelab.cli import app
from routelab.errors import RecipeError
from routelab.recipe import shipped_recipes


def call(*words: object) -> Result:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "220"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def build(folder: Path) -> Path:
    spec = importlib.util.spec_from_file_location("example", Path(__file__).parents[1] / "report" / "example.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(example.table1_results()), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps(example.example_manifest()), encoding="utf-8")
    return folder


def test_several_runs_are_one_page(tmp_path: Path) -> None:
    runs = [build(tmp_path / name) for name in ("one", "two")]
    shown = call("report", *runs, "--out", tmp_path / "all").stdout
    assert "2 runs, none of which compares with a control." in shown
    assert "one  table1" in shown
    assert str(tmp_path / "all" / "report.html") in shown
    assert "two" in (tmp_path / "all" / "report.html").read_text(encoding="utf-8")


def test_a_comparison_never_takes_the_place_of_a_run(tmp_path: Path) -> None:
    run = build(tmp_path / "one")
    with pytest.raises(RecipeError, match="holds a run, whose own report would be written over"):
        call("report", run, "--out", run)


def test_a_page_is_written_into_a_folder_only(tmp_path: Path) -> None:
    run = build(tmp_path / "one")
    with pytest.raises(RecipeError, match=r"a page cannot be written to .*manifest.json .*; choose another with --out"):
        call("report", run, "--out", run / "manifest.json")


def test_a_damaged_run_of_several_is_told(tmp_path: Path) -> None:
    runs = [build(tmp_path / name) for name in ("one", "two")]
    (runs[1] / "results.json").write_text('{"cells": NaN}', encoding="utf-8")
    shown = " ".join(call("report", *runs, "--out", tmp_path / "all").stdout.split())
    assert "1 run, which compares with no control." in shown
    assert "two left out" in shown
    assert "results.json is damaged or cut off (NaN is no number of JSON)" in shown


def test_every_recipe_is_listed_with_what_it_needs() -> None:
    shown = call("recipes").stdout
    for name in shipped_recipes():
        assert name in shown
    assert "aar, routing_only on mini-moe" in shown
    for what in ("reproduces:", "memory:", "data:", "time:"):
        assert shown.count(what) == len(shipped_recipes())
