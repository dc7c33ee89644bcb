"""Paired comparisons of short answers."""

from __future__ import annotations

import json

import pytest

from routelab.errors import EvaluationError
from routelab.evaluate.paired_answers import Answers, changed, compare_answers, split_half

GOLD = {"a": ["Paris"], "b": ["the red house"], "c": ["no"], "d": ["Ann", "Ann Lee"]}
FULL = {"a": "Paris", "b": "red house", "c": "no", "d": "Bob"}
OURS = {"a": "paris.", "b": "a red car", "c": "yes", "d": "Ann Lee"}


def test_scores_differences_and_changes() -> None:
    ours = Answers(OURS, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0})
    full = Answers(FULL, {"a": 1.0, "b": 1.5, "c": 2.5, "d": 4.5})
    found = compare_answers([ours], [full], GOLD, resamples=200)
    assert found["f1"]["value"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert found["f1"]["reference"] == pytest.approx(0.75)
    assert found["f1"]["difference"]["mean"] == pytest.approx(-0.125)
    assert found["f1"]["difference"]["low"] < 0 < found["f1"]["difference"]["high"]
    assert found["em"]["difference"]["mean"] == pytest.approx(-0.25)
    assert found["loss"]["difference"]["mean"] == pytest.approx(0.125)
    assert found["changed"] == 3  # "paris." is "Paris"
    assert (found["questions"], found["seeds"], found["answers"]) == (4, 1, 4)
    assert json.loads(json.dumps(found)) == found


def test_seeds_are_averaged_within_a_question() -> None:
    first = [Answers(OURS), Answers(FULL)]
    found = compare_answers(first, [Answers(FULL)] * 2, GOLD, resamples=200)
    single = compare_answers(first[:1], [Answers(FULL)], GOLD, resamples=200)
    assert found["f1"]["difference"]["mean"] == pytest.approx(single["f1"]["difference"]["mean"] / 2)
    assert found["changed"] == 3
    assert found["answers"] == 8
    assert "loss" not in found
    assert changed(first[1], first[1]) == 0


def test_unpaired_runs_are_refused() -> None:
    with pytest.raises(EvaluationError, match="same seeds"):
        compare_answers([Answers(OURS)], [], GOLD)
    with pytest.raises(EvaluationError, match="other questions: d"):
        compare_answers([Answers({k: v for k, v in OURS.items() if k != "d"})], [Answers(FULL)], GOLD)


def test_a_difference_that_is_there_only_in_the_first_half_does_not_replicate() -> None:
    second = {str(i): 0.0 for i in range(40)}
    real = {name: 1.0 + 0.1 * (int(name) % 3) for name in second}
    half = {name: value if int(name) < 20 else (-1) ** int(name) for name, value in real.items()}
    assert split_half(real, second, resamples=200)["replicates"] is True
    found = split_half(half, second, resamples=200)
    assert found["replicates"] is False
    assert found["first_half"]["low"] > 0
    assert found["second_half"]["mean"] == 0.0
    assert found["pooled"]["n"] == 40
    assert found["pooled"]["mean"] == pytest.approx(found["first_half"]["mean"] / 2)
    with pytest.raises(EvaluationError, match="same questions"):
        split_half(real, {"0": 1.0})
