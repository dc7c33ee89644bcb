"""Words to calls: what reaches the harness, and how a comparison is shown."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
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


@pytest.fixture
def mmlu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data with a few questions of one subject."""
    (tmp_path / "data/mmlu").mkdir(parents=True)
    row = {"subject": "anatomy", "question": "What is 1 + 1?", "choices": ["1", "2", "3", "4"], "answer": 1}
    for split in ("test", "dev"):
        with gzip.open(tmp_path / f"data/mmlu/{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row | {"question": f"What is {n} + 1?"}) + "\n" for n in range(5))
    monkeypatch.setenv("ROUTELAB_DATA", str(tmp_path / "data"))
    return tmp_path


def test_evaluate_runs_tasks_of_the_harness_at_a_depth(mmlu: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")
    words = ["evaluate", "--harness", "routelab_mmlu_anatomy", "--host", "mini-recurrent", "--limit", "1"]
    words += ["--num-steps", "4", "--method", "wise", "--set", "block_size=8", "--set", "discovery_steps=2"]
    done = CliRunner().invoke(app, [*words, "--out", str(mmlu / "out"), "--json"], catch_exceptions=False)
    said = json.loads(done.stdout)
    (written,) = (mmlu / "out").glob("results_*.json")
    (samples,) = (mmlu / "out").glob("samples_routelab_mmlu_anatomy_*.jsonl")
    found = json.loads(written.read_text(encoding="utf-8"))
    ours = found["config"]["routelab"]
    assert found["results"] == said["results"]
    assert ours["call"] == {"num_steps": 4}
    assert [(each["name"], each["config"]["block_size"]) for each in ours["methods"]] == [("wise", 8)]
    assert len(samples.read_text(encoding="utf-8").strip().split("\n")) == 1


@pytest.mark.parametrize(
    ("words", "confirmed"),
    [([], False), (["--confirm-run-unsafe-code"], True), (["--confirm_run_unsafe_code"], True)],
)
def test_evaluate_can_confirm_that_code_is_run(
    words: list[str], confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []

    def evaluate_tasks(*_: Any, run_code: bool, **__: Any) -> dict[str, Any]:
        given.append(run_code)
        return {}

    monkeypatch.setattr(harness, "RoutelabLM", lambda **_: None, raising=False)
    monkeypatch.setattr(harness, "evaluate_tasks", evaluate_tasks, raising=False)
    told = ["evaluate", "--harness", "routelab_humaneval", "--json", *words]
    assert CliRunner().invoke(app, told, catch_exceptions=False).exit_code == 0
    assert given == [confirmed]


def test_what_a_task_that_runs_code_asks_for_is_an_option_of_evaluate() -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")
    from routelab.evaluate.harness.command import named

    said = str(named(ValueError("Attempted to run task: routelab_humaneval which is marked as unsafe. Set ...")))
    option = said.rpartition(" ")[2]
    command = get_command(app).commands["evaluate"]  # type: ignore[attr-defined]
    assert option in [name for each in command.params for name in each.opts]


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
