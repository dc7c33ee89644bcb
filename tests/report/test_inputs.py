"""A damaged run directory is refused by name, with the way to repair it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from routelab.errors import RecipeError
from routelab.report.html import page_of, report_run
from routelab.report.inputs import read_run


@pytest.fixture
def folder(example: ModuleType, tmp_path: Path) -> Path:
    (tmp_path / "results.json").write_text(json.dumps(example.example_results()), encoding="utf-8")
    (tmp_path / "manifest.json").write_text(json.dumps(example.example_manifest()), encoding="utf-8")
    lines = [json.dumps(row) + "\n" for row in example.example_metrics()]
    (tmp_path / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path


def test_a_whole_run_is_read(folder: Path, example: ModuleType) -> None:
    expected = (example.example_results(), example.example_metrics(), example.example_manifest())
    run = read_run(folder)
    assert (run.results, run.metrics, run.manifest) == expected
    assert (run.kind, run.missing) == ("training", [])


def test_names_may_hold_line_separators(folder: Path) -> None:
    row = {"arm": "a\u2028b\x85c", "seed": 0, "step": 1}
    (folder / "metrics.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert list(read_run(folder).metrics) == [row]


@pytest.mark.parametrize("name", ["results.json", "metrics.jsonl", "manifest.json"])
@pytest.mark.parametrize("content", ["{}", "[]", '{"arm": "a'])
def test_a_damaged_file_is_named(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        read_run(folder)
    assert name in str(caught.value)
    assert "--resume" in str(caught.value)


def test_without_results_there_is_no_report(folder: Path) -> None:
    (folder / "results.json").unlink()
    with pytest.raises(RecipeError, match=r"holds no results.json.*--resume"):
        read_run(folder)


@pytest.mark.parametrize("name", ["metrics.jsonl", "manifest.json"])
def test_other_parts_may_be_missing_and_the_page_says_so(folder: Path, name: str) -> None:
    (folder / name).unlink()
    page, written = report_run(folder)
    assert f"{name} is missing" in page.note
    assert ("loss" in {panel.stem for panel in page.panels}) == (name != "metrics.jsonl")
    assert len(written) == 1 + 3 * len(page.panels)


def test_results_of_a_newer_version_are_named(folder: Path, example: ModuleType) -> None:
    values = {**example.example_results(), "schema": 2}
    (folder / "results.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"written by a newer version \(schema 2; .*upgrade routelab"):
        read_run(folder)


def test_results_of_an_older_version_that_lack_a_part_are_named(folder: Path, example: ModuleType) -> None:
    values = example.example_results()
    del values["arms"]["aar"]["train"]
    (folder / "results.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"results.json lacks 'train'"):
        report_run(folder)


@pytest.mark.parametrize(
    "damage",
    [
        {"arms": None},
        {"comparisons": None},
        {"comparisons": [{"difference": "x"}]},
        {"tasks": "x"},
        {"tasks": []},
        {"seeds": None},
        {"host": None},
        {"kind": []},
        {"kind": None},
        {"headline": {"arm": "nobody", "task": "mini-arithmetic"}},
        {"headline": {"arm": "aar", "task": "nothing"}},
        {"commands": None},
        {"note": float("nan")},
    ],
    ids=str,
)
def test_results_of_another_shape_are_named(folder: Path, example: ModuleType, damage: dict[str, Any]) -> None:
    (folder / "results.json").write_text(json.dumps({**example.example_results(), **damage}), encoding="utf-8")
    with pytest.raises(RecipeError, match=re.escape(str(folder / "results.json"))):
        report_run(folder)


def test_a_difference_that_is_text_is_named(folder: Path, example: ModuleType) -> None:
    values = example.example_results()
    values["comparisons"][1]["difference"] = "x"
    (folder / "results.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"results.json is damaged: its values are not what a run writes"):
        report_run(folder)


def test_damage_that_only_a_drawing_meets_is_named(folder: Path, example: ModuleType) -> None:
    values = example.example_results()
    values["comparisons"][0]["seeds"] = None
    (folder / "results.json").write_text(json.dumps(values), encoding="utf-8")
    page = page_of(read_run(folder))
    with pytest.raises(RecipeError, match=r"results.json is damaged"):
        _ = page.panels


def test_what_is_nested_too_deeply_is_named(folder: Path) -> None:
    (folder / "results.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"results.json is damaged or cut off \(it is nested too deeply\)"):
        read_run(folder)


@pytest.mark.parametrize(
    "damage", [{"sessions": None}, {"host": None}, {"sessions": [{}]}, {"hardware": {"cores": 1}}], ids=str
)
def test_a_manifest_of_another_shape_is_named(folder: Path, example: ModuleType, damage: dict[str, Any]) -> None:
    (folder / "manifest.json").write_text(json.dumps({**example.example_manifest(), **damage}), encoding="utf-8")
    with pytest.raises(RecipeError, match=re.escape(str(folder / "manifest.json"))):
        report_run(folder)


def test_a_manifest_whose_session_has_no_beginning_is_named(folder: Path, example: ModuleType) -> None:
    values = example.example_manifest()
    del values["sessions"][0]["started"]
    (folder / "manifest.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"manifest.json lacks 'started'"):
        report_run(folder)


def test_metrics_that_are_no_numbers_are_named(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text('{"arm": "aar", "seed": 0, "step": 1, "loss": "x"}\n', encoding="utf-8")
    with pytest.raises(RecipeError, match=r"metrics.jsonl is damaged"):
        report_run(folder)


def test_an_unknown_kind_is_named(folder: Path, example: ModuleType) -> None:
    values = {**example.example_results(), "kind": "modez"}
    (folder / "results.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RecipeError, match="of the kind 'modez', which this version cannot show; did you mean 'modes'"):
        read_run(folder)
