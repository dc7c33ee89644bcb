"""Rows of HotpotQA and 2WikiMultiHopQA in every form they are given out in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routelab.data.multihop import MultiHopQuestion, read_multihop
from routelab.errors import DataError

PAIRS = [["Lyra", ["Lyra is a ship.", " It was built by Tor."]], ["Tor", ["Tor was born in Oslo.", "He sailed."]]]
ROW: dict[str, Any] = {
    "_id": "one",
    "question": "Where was the builder of Lyra born? ",
    "answer": "Oslo",
    "type": "bridge",
    "context": PAIRS,
    "supporting_facts": [["Tor", 0], ["Lyra", 1], ["Tor", 1]],
}


def read(tmp_path: Path, *rows: dict[str, Any]) -> list[MultiHopQuestion]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_multihop(path)


def columns(pairs: list[Any], second: str) -> dict[str, list[Any]]:
    return {"title": [pair[0] for pair in pairs], second: [pair[1] for pair in pairs]}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"context": columns(PAIRS, "sentences"), "supporting_facts": columns(ROW["supporting_facts"], "sent_id")},
        {"context": columns(PAIRS, "content"), "supporting_facts": columns(ROW["supporting_facts"], "sent_id")},
        {"context": json.dumps(PAIRS), "supporting_facts": json.dumps(ROW["supporting_facts"])},
    ],
    ids=["pairs", "columns", "2wiki columns", "JSON text"],
)
def test_every_form_gives_the_same_question(tmp_path: Path, change: dict[str, Any]) -> None:
    (question,) = read(tmp_path, {**ROW, **change})
    assert (question.id, question.kind, question.answer) == ("one", "bridge", "Oslo")
    assert question.question == "Where was the builder of Lyra born?"
    assert question.evidence == (0, 1)
    assert [passage.text for passage in question.passages] == [
        "Lyra is a ship. It was built by Tor.",
        "Tor was born in Oslo. He sailed.",
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"context": []}, "row 1: there are no passages"),
        ({"context": "{"}, "row 1, context: not JSON"),
        ({"context": {"title": ["a"]}}, "lists 'title' and 'sentences'"),
        ({"context": ["Lyra"]}, r"expected pairs \[title, sentences\]"),
        ({"supporting_facts": [["Nemo", 0]]}, "evidence 'Nemo' is none of its passages"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, {**ROW, **change})


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 1: no field 'answer'; it has _id, context"):
        read(tmp_path, {key: value for key, value in ROW.items() if key != "answer"})


def test_the_real_file(data_root: Path) -> None:
    questions = read_multihop(data_root / "hotpotqa/dev_distractor_sample.jsonl.gz")
    assert len(questions) == 500
    assert {question.kind for question in questions} == {"bridge", "comparison"}
    assert all(1 <= len(question.evidence) <= len(question.passages) for question in questions)
