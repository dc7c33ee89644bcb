"""Records whose answers hold what other readers take for the end of a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from routelab.evaluate import read_scores
from routelab.evaluate.evaluation import write_records
from routelab.rundir import read_jsonl
from routelab.stored import json_lines
from routelab.study.lengths import read_answers
from routelab.train.recorder import _keep_lines

#: All that ``str.splitlines`` splits at, and that JSON may hold as it is.
SEPARATORS = "\u2028\u2029\x85"


def test_only_a_line_feed_ends_a_line() -> None:
    rows = [{"output": f"one{SEPARATORS}two"}, {"output": "three\n\r\x0b\x0c\x1c\x1d\x1e"}]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert len(text.splitlines()) > len(rows)
    assert [json.loads(line) for line in json_lines(text)] == rows
    assert json_lines("") == []


@pytest.mark.parametrize("separator", SEPARATORS)
def test_answers_with_line_separators_are_read_back(tmp_path: Path, separator: str) -> None:
    record = {"id": "a", "sample": 0, "output": f"x{separator}y", "tokens": 2, "characters": 3, "correct": True}
    rows = [record | {"score": 1.0, "step": 1}, record | {"id": "b", "score": 0.0, "step": 2}]
    path = tmp_path / "records.jsonl"
    write_records(path, rows)
    assert read_jsonl(path) == rows
    assert read_scores(path) == {"a": 1.0, "b": 0.0}
    assert list(read_answers(path)) == ["a/0", "b/0"]
    assert _keep_lines(path, 1) == rows[:1]
