"""Lengths by outcome, against numbers worked out by hand; intervals that cover what they should."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from routelab.errors import EvaluationError
from routelab.study.lengths import OUTCOMES, Answer, compare_lengths, read_answers


def answers(rows: list[tuple[int, bool]]) -> dict[str, Answer]:
    return {f"q{i}/0": Answer(tokens, 10 * tokens, correct) for i, (tokens, correct) in enumerate(rows)}


CONTROL = [(10, True), (20, True), (200, False), (40, False), (90, False), (30, True)]
MODEL = [(12, True), (20, True), (100, False), (20, False), (30, True), (60, False)]


def test_groups_hold_what_the_outcomes_say() -> None:
    found = compare_lengths([answers(MODEL)], [answers(CONTROL)], resamples=50)
    groups = found["groups"]
    assert {name: group["n"] for name, group in groups.items()} == {
        "all": 6,
        "both correct": 2,
        "both wrong": 2,
        "wrong to correct": 1,
        "correct to wrong": 1,
    }
    assert groups["both correct"]["statistics"]["mean tokens"] | {"low": 0, "high": 0} == {
        "control": 15.0,
        "model": 16.0,
        "change": pytest.approx(1 / 15),
        "low": 0,
        "high": 0,
    }
    everything = groups["all"]["statistics"]
    assert everything["median tokens"]["control"] == median(tokens for tokens, _ in CONTROL)
    assert everything["P99 tokens"]["model"] == pytest.approx(np.percentile([tokens for tokens, _ in MODEL], 99))
    wrong = groups["both wrong"]["statistics"]
    assert wrong["ramble rate"] == {"control": 0.5, "model": 0.0, "change": -1.0} | {
        end: wrong["ramble rate"][end] for end in ("low", "high")
    }
    # 1,000 characters are not over 1,000.
    assert wrong["P99 characters"]["model"] <= 1000
    single = groups["wrong to correct"]["statistics"]["mean tokens"]
    assert (single["change"], single["low"], single["high"]) == (pytest.approx(-2 / 3), None, None)


def test_empty_groups_have_no_statistics() -> None:
    found = compare_lengths([answers([(5, True), (6, True)])], [answers([(5, True), (7, True)])], resamples=20)
    assert found["groups"]["both wrong"] == {"n": 0, "questions": 0, "statistics": {}}
    assert found["groups"]["both correct"]["statistics"]["ramble rate"]["change"] is None
    assert set(found["groups"]) == {"all", *OUTCOMES}


def test_interval_covers_the_true_change_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(40):
        base = rng.gamma(4, 25, 80)
        control = answers([(round(value) + 1, False) for value in base])
        model = answers([(round(value * 0.8 * rng.lognormal(-0.02, 0.2)) + 1, False) for value in base])
        found = compare_lengths([model], [control], resamples=150, seed=trial)
        change = found["groups"]["both wrong"]["statistics"]["mean tokens"]
        covered += change["low"] <= -0.2 + 0.002 <= change["high"]
    assert covered >= 33


def test_runs_of_one_question_stay_together() -> None:
    """Ten equal runs are no more evidence than one."""
    rng = np.random.default_rng(1)
    rows = [(int(a), int(b)) for a, b in rng.integers(20, 200, (30, 2))]
    control, model = (answers([(pair[side], False) for pair in rows]) for side in (0, 1))
    one, ten = (
        compare_lengths([model] * n, [control] * n, resamples=400)["groups"]["all"]["statistics"]["mean tokens"]
        for n in (1, 10)
    )
    assert ten["low"] == pytest.approx(one["low"])
    assert ten["high"] == pytest.approx(one["high"])


def test_reads_what_evaluate_writes(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = {"id": "a", "sample": 1, "tokens": 3, "characters": 9, "correct": True, "score": 1.0, "output": "x"}
    path.write_text(json.dumps(record) + "\n")
    assert read_answers(path) == {"a/1": Answer(3, 9, True)}
    path.write_text(json.dumps(record) * 2)
    with pytest.raises(EvaluationError, match="line 1: no record"):
        read_answers(path)
    path.write_text((json.dumps(record) + "\n") * 2)
    with pytest.raises(EvaluationError, match="line 2: the answer a/1 occurs twice"):
        read_answers(path)
    path.write_text('{"id": "a", "loss": 1.0}\n')
    with pytest.raises(EvaluationError, match="no record of a generated answer"):
        read_answers(path)
    with pytest.raises(EvaluationError, match="cannot read"):
        read_answers(tmp_path / "none.jsonl")


def evaluated(folder: Path, host: str, weights: str, data: str = "d") -> Path:
    """What ``routelab evaluate --out`` leaves."""
    folder.mkdir(parents=True)
    record = {"id": "a", "sample": 0, "tokens": 3, "characters": 9, "correct": True}
    (folder / "records.jsonl").write_text(json.dumps(record) + "\n")
    about = {"host": host, "host_files": {"model.safetensors": weights}, "data_sha256": data}
    (folder / "summary.json").write_text(json.dumps(about))
    return folder / "records.jsonl"


def recorded(run: Path, arm: str, weights: str, data: str = "d") -> Path:
    """What a run leaves."""
    path = evaluated(run / "records" / arm, "", "").rename(run / "records" / arm / "gsm8k.jsonl")
    path.with_name("summary.json").unlink()
    path.with_suffix(".json").write_text(json.dumps({"data_sha256": data}))
    (run / "manifest.json").write_text(json.dumps({"host": {"model.safetensors": weights}}))
    return path


def test_answers_of_other_hosts_or_data_are_refused(tmp_path: Path) -> None:
    ours = read_answers(evaluated(tmp_path / "ours", "h", "00"))
    compare_lengths([ours], [read_answers(evaluated(tmp_path / "same", "elsewhere/h", "00"))], resamples=2)
    compare_lengths([ours], [dict(ours)], resamples=2)  # of unknown origin
    run = read_answers(recorded(tmp_path / "run", "base", "00"))
    compare_lengths([ours], [run], resamples=2)
    cases = {
        r"ours.* is of the host h, weights \w{8} and .*other.* of the host h, weights": evaluated(
            tmp_path / "other", "h", "11"
        ),
        "has other data than .*changed.*: SHA-256 d and e": evaluated(tmp_path / "changed", "h", "00", data="e"),
        r"host unknown, weights \w{8}: a comparison needs one host": recorded(tmp_path / "old", "aar", "11"),
        "has other data than .*gsm8k.jsonl": recorded(tmp_path / "new", "aar", "00", data="e"),
    }
    for said, path in cases.items():
        with pytest.raises(EvaluationError, match=said):
            compare_lengths([ours], [read_answers(path)])
    third = read_answers(evaluated(tmp_path / "third", "h", "22"))
    with pytest.raises(EvaluationError, match="third"):
        compare_lengths([ours, third], [ours, third])
    (tmp_path / "run" / "manifest.json").write_text("{")
    with pytest.raises(EvaluationError, match=r"manifest\.json is missing or damaged"):
        read_answers(tmp_path / "run" / "records" / "base" / "gsm8k.jsonl")


def test_runs_that_do_not_pair_are_refused() -> None:
    one = answers(MODEL)
    with pytest.raises(EvaluationError, match="got 2 runs of the model, 1 of the control"):
        compare_lengths([one, one], [one])
    with pytest.raises(EvaluationError, match="run 1: only one of the two has the answers q5/0"):
        compare_lengths([one], [answers(MODEL[:5])])
    with pytest.raises(EvaluationError, match="no answers"):
        compare_lengths([{}], [{}])
