"""Comparisons of the three forms of results, from files written here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import EvaluationError
from routelab.evaluate import result_files
from routelab.evaluate.comparing import compare_results
from routelab.results import SCHEMA


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def records(path: Path, right: Sequence[int], answers: Sequence[str] | None = None, data: str = "d") -> None:
    said = answers or [f"answer {score}" for score in right]
    lines = [
        json.dumps({"id": f"e{i}", "score": score, "answer": answer})
        for i, (score, answer) in enumerate(zip(right, said, strict=True))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write(path.with_suffix(".json"), {"data_sha256": data, "arguments": {"batch_size": 1}})


def run(
    folder: Path, arms: dict[str, Sequence[Sequence[int]]], *, schema: int = 1, host: str = "h", **more: Any
) -> Path:
    """A run directory whose ``arms`` have the scores of each seed."""
    write(
        folder / "results.json",
        {
            "schema": schema,
            "kind": "training",
            "host": {"name": host, "family": "olmoe", "parameters": 1},
            "seeds": list(range(len(next(iter(arms.values()))))),
            "headline": {"arm": next(iter(arms)), "task": "t"},
            "tasks": [{"task": "t", "metric": "accuracy", "examples": 4}],
            "arms": {arm: {} for arm in arms},
            **more,
        },
    )
    for arm, seeds in arms.items():
        for seed, right in enumerate(seeds):
            records(folder / "records" / arm / f"seed-{seed}" / "t.jsonl", right)
    records(folder / "records" / "base" / "t.jsonl", [0, 0, 0, 0])
    return folder


def evaluated(
    folder: Path, right: Sequence[int], *, host: str = "h", metric: str = "accuracy", data: str = "d", **more: object
) -> Path:
    records(folder / "records.jsonl", right)
    summary = {"host": host, "routing": None, "task": "t", "metric": metric, "data_sha256": data, "arguments": {}}
    write(folder / "summary.json", {**summary, **more})
    return folder


def test_arms_of_runs(tmp_path: Path) -> None:
    first = run(tmp_path / "a", {"aar": [[1, 1, 0, 1], [1, 1, 1, 1]], "control": [[0, 1, 0, 1], [0, 1, 0, 1]]})
    (found,) = compare_results(str(first), f"{first}:control")["tasks"]
    assert (found["first"], found["second"]) == (0.875, 0.5)
    assert found["difference"]["mean"] == 0.375
    assert found["difference"]["covers"] == "examples and seeds"
    assert (found["changed"], found["answers"]) == (3, 8)
    assert (found["gained"], found["lost"]) == (2, 0)
    assert found["examples"][0] == {
        "id": "e0",
        "seeds": [0, 0],
        "first": "answer 1",
        "second": "answer 0",
        "first_score": 1.0,
        "second_score": 0.0,
    }
    against_host = compare_results(str(first), f"{first}:base")
    assert against_host["tasks"][0]["difference"]["covers"] == "examples and seeds of the first"
    assert against_host["tasks"][0]["changed"] == 7
    assert against_host["settings"][0] == {"setting": "arm", "first": "aar", "second": "base"}


def test_a_lower_loss_is_better(tmp_path: Path) -> None:
    low = evaluated(tmp_path / "low", [1, 1, 2, 1, 1, 1], metric="loss")
    high = evaluated(tmp_path / "high", [2, 2, 2, 2, 2, 2], metric="loss")
    (found,) = compare_results(str(low), str(high))["tasks"]
    assert (found["verdict"], found["gained"], found["lost"]) == ("first", 5, 0)
    assert compare_results(str(high), str(low))["tasks"][0]["verdict"] == "second"
    assert compare_results(str(low), str(low))["tasks"][0]["verdict"] == "undecided"


def test_a_run_and_an_evaluation(tmp_path: Path) -> None:
    trained = run(tmp_path / "run", {"aar": [[1, 1, 0, 1]]})
    alone = evaluated(tmp_path / "alone", [0, 1, 1, 1])
    (found,) = compare_results(str(trained), str(alone))["tasks"]
    assert (found["gained"], found["lost"], found["verdict"]) == (1, 1, "undecided")


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    ours = evaluated(tmp_path / "ours", [1, 0])
    cases = {
        "of the host h and .* of the host other: a comparison needs one host": evaluated(
            tmp_path / "x", [1, 0], host="other"
        ),
        "had other data": evaluated(tmp_path / "y", [1, 0], data="e"),
        "not scored on the same examples": evaluated(tmp_path / "z", [1, 0, 1]),
        "nothing in common": evaluated(tmp_path / "v", [1, 0], metric="loss"),
        "holds no results": tmp_path / "nothing",
        r"newer version \(schema 2; this one reads up to 1\)": run(tmp_path / "new", {"a": [[1, 0]]}, schema=2),
        "holds a 'modes' run": run(tmp_path / "modes", {"a": [[1, 0]]}, kind="modes"),
    }
    for said, theirs in cases.items():
        with pytest.raises(EvaluationError, match=said):
            compare_results(str(ours), str(theirs))
    with pytest.raises(EvaluationError, match="no arm 'aarr'; did you mean 'aar'"):
        compare_results(str(ours), f"{run(tmp_path / 'run', {'aar': [[1, 0]]})}:aarr")


def test_hosts_are_told_apart_by_their_weights_not_by_their_folder(tmp_path: Path) -> None:
    runs = {}
    for name, digest in (("a", "00"), ("b", "11"), ("c", "00")):
        runs[name] = run(tmp_path / name, {"aar": [[1, 0, 1]]}, host=f"{name}/mini")
        write(runs[name] / "manifest.json", {"host": {"model.safetensors": digest}})
    with pytest.raises(EvaluationError, match=r"mini, weights \w{8} and .*mini, weights \w{8}: a comparison needs one"):
        compare_results(str(runs["a"]), str(runs["b"]))
    assert compare_results(str(runs["a"]), str(runs["c"]))["tasks"]
    ours = evaluated(tmp_path / "e", [1, 1, 1], host="elsewhere", host_files={"model.safetensors": "00"})
    assert compare_results(str(ours), str(runs["a"]))["tasks"], "an evaluation of the same weights"
    with pytest.raises(EvaluationError, match=r"weights \w{8}: a comparison needs one"):
        compare_results(str(ours), str(runs["b"]))
    lost = run(tmp_path / "d", {"aar": [[1, 0, 1]]}, host="d/mini")
    assert compare_results(str(runs["a"]), str(lost))["tasks"]
    write(lost / "manifest.json", {"host": None})
    with pytest.raises(EvaluationError, match=r"manifest.json is damaged"):
        compare_results(str(runs["a"]), str(lost))


def test_a_host_in_a_folder_of_a_general_name_is_named_with_the_one_around_it(tmp_path: Path) -> None:
    ours = evaluated(tmp_path / "a", [1, 0], host="one/host")
    with pytest.raises(EvaluationError, match=r"host one/host and .* host two/host"):
        compare_results(str(ours), str(evaluated(tmp_path / "b", [1, 0], host="two/host")))


def test_a_run_of_the_first_version_has_no_kind(tmp_path: Path) -> None:
    old = run(tmp_path / "old", {"aar": [[1, 0, 1, 1]]})
    values = json.loads((old / "results.json").read_text(encoding="utf-8"))
    del values["kind"]
    write(old / "results.json", values)
    assert compare_results(str(old), f"{old}:base")["tasks"]


@pytest.mark.parametrize(
    "damage",
    [
        {"arms": None},
        {"tasks": "x"},
        {"tasks": []},
        {"tasks": [{}]},
        {"seeds": None},
        {"seeds": []},
        {"host": None},
        {"kind": []},
        {"schema": "new"},
        {"headline": {}},
        {"headline": None},
        {"title": float("nan")},
    ],
    ids=str,
)
def test_damaged_results_are_named(tmp_path: Path, damage: dict[str, Any]) -> None:
    broken = run(tmp_path / "run", {"aar": [[1, 0]]})
    values = json.loads((broken / "results.json").read_text(encoding="utf-8"))
    write(broken / "results.json", values | damage)
    with pytest.raises(EvaluationError, match=re.escape(str(broken))):
        compare_results(str(broken), str(evaluated(tmp_path / "alone", [1, 0])))


def test_a_file_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    broken = run(tmp_path / "run", {"aar": [[1, 0]]})
    (broken / "results.json").write_text('{"a":' * 100_000, encoding="utf-8")
    with pytest.raises(EvaluationError, match=r"results.json is missing or damaged: it is nested too deeply"):
        compare_results(str(broken), str(broken))


def test_the_damaged_file_is_named_not_another(tmp_path: Path) -> None:
    broken = run(tmp_path / "run", {"aar": [[1, 0], [1, 1]]})
    (broken / "records" / "aar" / "seed-1" / "t.jsonl").write_text('{"id": "e0", "score": "x"}\n', encoding="utf-8")
    with pytest.raises(EvaluationError, match=r"seed-1/t.jsonl is damaged"):
        compare_results(str(broken), str(broken))
    alone = evaluated(tmp_path / "alone", [1, 0])
    write(alone / "summary.json", {"host": "h", "metric": "accuracy"})
    with pytest.raises(EvaluationError, match=r"summary.json lacks 'task'"):
        compare_results(str(alone), str(alone))


def test_other_seeds_widen_the_interval_and_share_no_answers(tmp_path: Path) -> None:
    """Every seed of the first is all right or all wrong: nothing but seeds varies, which examples alone cannot see."""
    right, wrong = [1] * 40, [0] * 40
    ours = run(tmp_path / "ours", {"aar": [right, right, wrong]}, seeds=[0, 1, 2])
    theirs = run(tmp_path / "theirs", {"aar": [wrong, right, wrong]}, seeds=[1, 2, 3])
    for old in (2, 1, 0):  # written as seeds 0 to 2
        place = theirs / "records" / "aar"
        (place / f"seed-{old}").rename(place / f"seed-{old + 1}")
    (found,) = compare_results(str(ours), str(theirs))["tasks"]
    assert found["difference"]["covers"] == "examples and seeds"
    assert found["difference"]["mean"] == pytest.approx(1 / 3)
    assert found["difference"]["low"] < 0 < found["difference"]["high"]
    assert found["verdict"] == "undecided"
    assert found["answers"] == 80  # of seeds 1 and 2, which both have
    assert found["changed"] == 80
    assert {tuple(each["seeds"]) for each in found["examples"]} == {(1, 1)}


def test_seeds_in_another_order_are_the_same_seeds(tmp_path: Path) -> None:
    ours = run(tmp_path / "ours", {"aar": [[1, 1, 0], [0, 0, 0]]}, seeds=[0, 1])
    theirs = run(tmp_path / "theirs", {"aar": [[1, 1, 0], [0, 0, 0]]}, seeds=[1, 0])
    (found,) = compare_results(str(ours), str(theirs))["tasks"]
    assert (found["difference"]["low"], found["difference"]["high"], found["changed"]) == (0, 0, 0)


def test_results_of_the_harness_need_their_records_and_a_known_form(tmp_path: Path) -> None:
    results = {"config": {"routelab": {"schema": 1, "host": "h", "shape": {}}}, "configs": {"t": {}}}
    write(tmp_path / "results_1.json", results)
    with pytest.raises(EvaluationError, match="--log_samples"):
        compare_results(str(tmp_path), str(tmp_path))
    results["config"]["routelab"]["schema"] = 9
    write(tmp_path / "results_2.json", results)
    with pytest.raises(EvaluationError, match="upgrade routelab"):
        compare_results(str(tmp_path), str(tmp_path))
    (tmp_path / "results_3.json").write_text("{", encoding="utf-8")
    with pytest.raises(EvaluationError, match="missing or damaged"):
        compare_results(str(tmp_path), str(tmp_path))


def test_two_checkpoints_of_one_name_are_told_apart_in_results_of_the_harness(tmp_path: Path) -> None:
    places = {}
    for place, digest in (("a", "00"), ("b", "11"), ("c", "00")):
        about = {"schema": 1, "host": f"{place}/mini", "shape": {}, "host_files": {"model.safetensors": digest}}
        write(tmp_path / place / "results_1.json", {"config": {"routelab": about}, "configs": {"t": {}}})
        sample = {"doc_id": 0, "doc_hash": "d", "filter": "none", "metrics": ["acc"], "filtered_resps": ["x"]}
        lines = [json.dumps(sample | {"doc_id": i, "acc": i % 2}) for i in range(3)]
        (tmp_path / place / "samples_t_1.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        places[place] = str(tmp_path / place)
    assert compare_results(places["a"], places["c"])["tasks"]
    with pytest.raises(EvaluationError, match=r"mini, weights \w{8} and .*mini, weights \w{8}: a comparison needs one"):
        compare_results(places["a"], places["b"])
    same = run(tmp_path / "run", {"aar": [[1, 0, 1]]}, host="elsewhere")
    write(same / "manifest.json", {"host": {"model.safetensors": "11"}})
    with pytest.raises(EvaluationError, match=r"weights \w{8}: a comparison needs one"):
        compare_results(places["a"], str(same))


def test_the_newest_schema_is_that_of_runs() -> None:
    assert result_files.RUN_SCHEMA == SCHEMA
