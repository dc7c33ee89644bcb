"""A damaged run directory is refused by name, with the way to repair it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from routelab.errors import RecipeError
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
    assert read_run(folder) == expected


@pytest.mark.parametrize("name", ["results.json", "metrics.jsonl", "manifest.json"])
@pytest.mark.parametrize("content", ["{}", "[]", '{"arm": "a', None])
def test_a_damaged_file_is_named(folder: Path, name: str, content: str | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        read_run(folder)
    assert name in str(caught.value)
    assert "--resume" in str(caught.value)
