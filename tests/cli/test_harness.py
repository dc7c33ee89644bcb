"""Words to calls: what reaches the harness, and how a comparison is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from routelab.cli import app
from routelab.evaluate import harness


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(harness, "run_command", lambda arguments: found.append(list(arguments)), raising=False)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--model_args", "host=mini-moe,num_steps=4", "--tasks", "routelab_gsm8k", "--limit", "2"],
        ["--model", "routelab", "--model_args", "host=mini-moe", "dtype=float32", "-t", "routelab_bbh", "-L", "2"],
        ["run", "--help"],
        ["ls", "tasks"],
    ],
)
def test_every_argument_is_the_harness_s(arguments: list[str], reached: list[list[str]]) -> None:
    done = CliRunner().invoke(app, ["lm-eval", *arguments])
    assert done.exit_code == 0, done.output
    assert reached == [arguments]


def evaluated(folder: Path, scores: list[int]) -> Path:
    folder.mkdir()
    summary = {"host": "h", "routing": folder.name, "task": "gsm8k", "metric": "accuracy", "arguments": {}}
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    lines = [json.dumps({"id": i, "score": score, "answer": str(score)}) for i, score in enumerate(scores)]
    (folder / "records.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_a_comparison_is_printed_and_written(tmp_path: Path) -> None:
    pair = [str(evaluated(tmp_path / "a", [1, 1, 1, 0])), str(evaluated(tmp_path / "b", [0, 1, 0, 0]))]
    done = CliRunner().invoke(app, ["compare", *pair, "--json", "--out", str(tmp_path / "c.json")])
    found: dict[str, Any] = json.loads(done.output)
    assert found == json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert found["tasks"][0]["difference"]["mean"] == 0.5
    shown = CliRunner().invoke(app, ["compare", *pair], env={"COLUMNS": "200"}).output
    for said in ("gsm8k", "0.7500 − 0.2500 = +0.5000", "2 of 4", "they differ in", "routing"):
        assert said in shown
