from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from routelab.errors import EvaluationError
from routelab.evaluate import evaluate, evaluation, read_scores
from routelab.evaluate.tasks import Task

Make = Callable[..., PreTrainedModel]


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _answer_task(gold: dict[str, str]) -> Task:
    examples = tuple({"id": name, "prompt": f"Say {name}.", "gold": value} for name, value in gold.items())
    return Task(name="toy", kind="answer", examples=examples, options=MappingProxyType({}))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """Let generation return given outputs, so that scoring is tested on known texts."""

    def script(outputs: list[str]) -> None:
        def generate(
            model: object, tokenizer: object, prompts: list, *, ids: list, num_samples: int, **_: object
        ) -> list:
            return [
                {
                    "id": name,
                    "sample": sample,
                    "prompt": prompt,
                    "output": (text := outputs[i * num_samples + sample]),
                    "tokens": len(text.split()),
                    "characters": len(text),
                    "finished": True,
                    "truncated": False,
                }
                for i, (name, prompt) in enumerate(zip(ids, prompts, strict=True))
                for sample in range(num_samples)
            ]

        monkeypatch.setattr(evaluation, "generate_answers", generate)

    return script


def test_answers_are_scored(scripted: Callable, make_model: Make, tokenizer: object, tmp_path: Path) -> None:
    scripted(["5 + 5 = 10\n#### 10", "it is 1,234.0", "<think>#### 7", "no idea"])
    path = tmp_path / "deep" / "records.jsonl"
    task = _answer_task({"a": "10", "b": "1234", "c": "7", "d": "3"})
    result = evaluate(make_model("llama"), tokenizer, task, records_path=path)
    assert result["accuracy"] == 0.5
    assert (result["n"], result["truncated"], result["empty"]) == (4, 1, 2)
    assert result["found"] == {"hash": 1, "last_number": 1, "none": 2}
    assert result["length"]["tokens"] == {"mean": 3.5, "median": 2.5, "p99": pytest.approx(6.88)}
    assert result["metric"] == "accuracy"
    assert read_scores(path) == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert [record["answer"] for record in _records(path)] == ["10", "1234.0", "", ""]
    assert [entry.name for entry in path.parent.iterdir()] == ["records.jsonl"], "no temporary file stays behind"
    assert json.loads(json.dumps(result)) == result


def test_several_samples(scripted: Callable, make_model: Make, tokenizer: object, tmp_path: Path) -> None:
    scripted(["#### 1", "#### 2", "#### 1", "#### 1", "#### 9", "#### 9", "#### 9", "#### 9"])
    path = tmp_path / "records.jsonl"
    task = _answer_task({"a": "1", "b": "2"})
    result = evaluate(make_model("llama"), tokenizer, task, num_samples=4, temperature=1.0, records_path=path)
    assert result["accuracy"] == result["mean_at_k"]["4"] == 0.375
    assert result["pass_at_k"] == {"1": pytest.approx(0.375), "2": 0.5, "4": 0.5}
    assert result["n"] == 2
    assert read_scores(path) == {"a": 0.75, "b": 0.0}
    assert len(_records(path)) == 8


@pytest.mark.parametrize("family", ["olmoe"])
def test_mini_tasks_run_through(
    family: str, make_model: Make, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    model = make_model(family)
    arithmetic = evaluate(model, tokenizer, "mini-arithmetic", limit=6, max_new_tokens=5, options={"steps": 2}, seed=4)
    assert arithmetic["n"] == 6
    assert arithmetic["length"]["tokens"]["mean"] <= 5
    assert arithmetic["arguments"]["max_new_tokens"] == 5
    assert arithmetic["arguments"]["options"]["steps"] == 2
    assert arithmetic["arguments"]["seed"] == 4
    facts = evaluate(model, tokenizer, "mini-facts", limit=6, records_path=tmp_path / "facts.jsonl")
    records = _records(tmp_path / "facts.jsonl")
    assert facts["accuracy"] == sum(record["correct"] for record in records) / 6
    for record in records:
        assert record["choice"] == max(range(4), key=record["log_likelihoods"].__getitem__)
        assert record["prompt"].endswith("assistant\n")


def test_loss_task_weighs_tokens(make_model: Make, tokenizer: PreTrainedTokenizerBase, tmp_path: Path) -> None:
    rows = [
        {"id": name, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]}
        for name, text in (("short", "Yes."), ("long", "It is a rather long reply to so short a question."))
    ]
    task = Task(name="toy", kind="loss", examples=tuple(rows), options=MappingProxyType({}))
    result = evaluate(make_model("llama"), tokenizer, task, records_path=tmp_path / "r.jsonl")
    short, long = _records(tmp_path / "r.jsonl")
    total = short["loss"] * short["tokens"] + long["loss"] * long["tokens"]
    assert result["loss"] == pytest.approx(total / result["tokens"])
    assert result["loss_per_example"] == pytest.approx((short["loss"] + long["loss"]) / 2)
    assert read_scores(tmp_path / "r.jsonl") == {"short": short["loss"], "long": long["loss"]}


def test_ready_tasks_take_no_options(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(EvaluationError, match="ready task"):
        evaluate(make_model("llama"), tokenizer, _answer_task({"a": "1"}), limit=1)


def test_unreadable_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="cannot read the records"):
        read_scores(tmp_path / "none.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"id": "a", "score": 1}\n{"id": "b"}\n')
    with pytest.raises(EvaluationError, match="line 2"):
        read_scores(tmp_path / "bad.jsonl")
