from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from routelab.data.reflection import ReflectiveWords
from routelab.errors import EvaluationError
from routelab.evaluate import evaluate
from routelab.evaluate.benchmarks import GPQA_COLUMNS
from routelab.evaluate.leakage import (
    MEASURES,
    compare,
    measure_answers,
    measure_leakage,
    mode_gap,
    scores_of,
    summarise_mode,
    with_control_word,
)
from routelab.evaluate.tasks import get_task


def record(name: str, output: str, *, correct: bool = True, tokens: int = 10, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "output": output,
        "tokens": tokens,
        "characters": len(output),
        "truncated": False,
        "answer": "4" if output else "",
        "score": float(correct),
        **fields,
    }


THINK = [
    record("a", "<think>\nOkay, 2 + 2 = 4. Wait, yes.</think>\n\n4", tokens=30),
    record("b", "<think>Hmm, hmm.", correct=False, tokens=50, truncated=True, answer=""),
]
NO_THINK = [record("a", "4", tokens=1), record("b", "2 + 2 = $4", tokens=7), record("b", "", correct=False, tokens=0)]


def test_a_mode_in_numbers() -> None:
    summary = summarise_mode(measure_answers(THINK, ramble=20))
    assert summary["n"] == 2
    assert summary["accuracy"] == 0.5
    assert summary["tokens"] == {"mean": 40.0, "median": 40.0, "p99": float(np.percentile([30, 50], 99))}
    assert summary["reflective"] == 2.0
    assert summary["reflective_share"] == summary["thought_share"] == 1.0
    assert summary["working_share"] == 0.0, "what stands in a thought is not shown working"
    assert summary["ramble_rate"] == 0.5
    assert (summary["truncated"], summary["empty"]) == (1, 1)
    direct = summarise_mode(measure_answers(NO_THINK))
    assert direct["reflective"] == direct["reflective_share"] == direct["thought_share"] == 0
    assert direct["working_share"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("output", "thinks"),
    [
        ("<think>a</think>b", True),
        ("<think>\n\n</think>b", False),
        ("a</think>b", True),
        ("</think>b", False),
        ("b<think>a", True),
        ("<think></think>b<think>a</think>", True),
        ("I think so", False),
    ],
)
def test_thoughts_are_seen(output: str, thinks: bool) -> None:
    assert measure_answers([record("a", output)])[0]["thinks"] is thinks


def test_the_words_are_configurable() -> None:
    measured = measure_answers([record("a", "wait for it, maybe")], ReflectiveWords(("wait", "maybe")))
    assert measured[0]["reflective"] == 2


def test_the_gap_pairs_examples_and_averages_samples() -> None:
    think, no_think = measure_answers(THINK), measure_answers(NO_THINK)
    assert scores_of(no_think, "tokens") == {"a": 1, "b": 3.5}
    gap = mode_gap(think, no_think)
    tokens = gap["difference"]["tokens"]
    assert tokens["mean"] == pytest.approx(((30 - 1) + (50 - 3.5)) / 2)
    assert tokens["low"] <= tokens["mean"] <= tokens["high"]
    assert set(gap["difference"]) == set(MEASURES)
    assert gap["length_ratio"] == pytest.approx(40 / (8 / 3))
    assert mode_gap(think, measure_answers([record(i, "", tokens=0) for i in "ab"]))["length_ratio"] is None
    json.dumps(gap)


def test_models_are_compared_over_seeds() -> None:
    rng = np.random.default_rng(0)
    arms = [
        [
            measure_answers([record(f"q{i}", "x", tokens=int(base[i]) + shift) for i in range(40)])
            for base in rng.integers(50, 60, (3, 40))
        ]
        for shift in (0, 5)
    ]
    found = compare(arms[1], arms[0], ["tokens", "reflective"], resample_seeds=True, resamples=200)
    assert found["tokens"]["mean"] == pytest.approx(5, abs=1)
    assert found["tokens"]["covers"] == "examples and seeds"
    assert found["reflective"]["high"] == 0
    with pytest.raises(EvaluationError, match="did you mean 'tokens'"):
        compare(arms[0], arms[1], ["token"])
    with pytest.raises(EvaluationError, match="not scored on the same examples"):
        compare([arms[0][0][:-1]], [arms[1][0]], ["tokens"])


def test_only_scored_answers_are_measured() -> None:
    with pytest.raises(EvaluationError, match="no answers to measure"):
        measure_answers([])
    with pytest.raises(EvaluationError, match="record 1 is no generated answer: it lacks output, tokens"):
        measure_answers([record("a", ""), {k: v for k, v in record("b", "").items() if k not in ("output", "tokens")}])


def test_measures_outlive_the_text() -> None:
    measured = measure_answers(THINK)
    bare = [{k: v for k, v in each.items() if k != "output"} for each in measured]
    assert summarise_mode(measure_answers(bare)) == summarise_mode(measured)


def test_control_words_follow_the_last_question() -> None:
    task = get_task("mini-arithmetic", limit=2, steps=1)
    asked = with_control_word(task, "/no_think")
    for before, after in zip(task.examples, asked.examples, strict=True):
        assert after["prompt"][-1]["content"] == f"{before['prompt'][-1]['content']} /no_think"
        assert after["id"] == before["id"]
    assert asked.sha256 != task.sha256


def test_texts_take_no_control_word(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "1+1?", "answer": "2\n#### 2"}))
    with pytest.raises(EvaluationError, match=r"'gsm8k-test-0'.*gsm8k takes chat=True"):
        with_control_word(get_task("gsm8k", path=str(tmp_path), shots=0), "/think")


def test_a_model_is_asked_in_every_mode(
    make_model: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> None:
    task = get_task("mini-arithmetic", limit=3, steps=1)
    words = ReflectiveWords(("e",))
    summary, records = measure_leakage(
        make_model("llama"), tokenizer, task, reflective=words, max_new_tokens=6, batch_size=3
    )
    assert set(summary["modes"]) == set(records) == {"think", "no_think"}
    assert all("/no_think" in each["prompt"] for each in records["no_think"])
    assert all("/think" in each["prompt"] for each in records["think"])
    assert [each["id"] for each in records["think"]] == [example["id"] for example in task.examples]
    assert summary["modes"]["think"]["tokens"]["mean"] <= 6
    assert summary["gap"]["difference"]["tokens"]["n"] == 3
    assert summary["words"] == ["e"]
    one, _ = measure_leakage(make_model("llama"), tokenizer, task, modes={"fast": "/fast"}, max_new_tokens=2)
    assert one["gap"] is None


def test_private_text_is_kept_nowhere(
    make_model: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    path = tmp_path / "gpqa.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(GPQA_COLUMNS)
        writer.writerows([f"secret {i}?", "right", "w1", "w2", "w3"] for i in range(2))
    task = get_task("gpqa", path=str(path))
    summary, records = measure_leakage(make_model("llama"), tokenizer, task, max_new_tokens=2)
    evaluate(make_model("llama"), tokenizer, task, max_new_tokens=2, records_path=tmp_path / "records.jsonl")
    kept = json.dumps([summary, records]) + (tmp_path / "records.jsonl").read_text()
    assert "secret" not in kept
    assert '"output"' not in kept
    assert summarise_mode(measure_answers(records["think"])) == summary["modes"]["think"]


def test_other_kinds_of_task_are_refused(
    make_model: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(EvaluationError, match="'mini-facts' is a choice and has no generated answers"):
        measure_leakage(make_model("llama"), tokenizer, get_task("mini-facts", limit=2))
