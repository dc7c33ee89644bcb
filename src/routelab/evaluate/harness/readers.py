"""Where the rows of the local tasks come from, as ``(place, name, split) -> rows``. Nothing is downloaded unless a
place is a hub name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from routelab.data.multihop import read_multihop
from routelab.data.sources import LINES, data_root
from routelab.errors import DataError, closest
from routelab.evaluate import benchmarks
from routelab.evaluate.splits import split_rows

Row = dict[str, Any]

#: Source -> its place below ``ROUTELAB_DATA``.
PLACES: Mapping[str, str] = MappingProxyType(
    {
        "2wikimultihopqa": "2wikimultihopqa/dev.json",
        "aime24": "aime24",
        "bbh": "bbh",
        "gpqa": "gpqa/gpqa_diamond.csv",
        "gsm8k": "gsm8k",
        "hotpotqa": "hotpotqa/dev_distractor_sample.jsonl.gz",
        "humaneval": "humaneval",
        "ifeval": "ifeval",
        "math500": "math500",
        "mmlu": "mmlu",
    }
)


def read_rows(place: str, name: str | None, split: str) -> list[Row]:
    """Return the rows of a split as they are."""
    return [dict(row) for row in _read(place, split, _root())]


def read_subject(place: str, name: str | None, split: str) -> list[Row]:
    """Return the rows of MMLU whose ``subject`` is ``name``."""
    rows = _read(place, split, _root())
    found = [dict(row) for row in rows if row.get("subject") == name]
    if not found:
        known = {str(row.get("subject")) for row in rows}
        raise DataError(f"{place} ({split}) has no subject {name!r}{closest(str(name), known)}")
    return found


def read_bbh(place: str, name: str | None, split: str) -> list[Row]:
    """Return the rows of one task of BIG-Bench Hard: ``<name>.jsonl.gz`` and the like in a directory, or a hub name
    with the task's place in it, such as ``lukaemon/bbh:{name}``."""
    if "{name}" in place:
        return read_rows(place.format(name=name), None, split)
    return read_rows(place, None, str(name))


def read_instructions(place: str, name: str | None, split: str) -> list[Row]:
    """Return the rows of IFEval; arguments that a table fills with nulls are left out."""
    return [
        {**row, "kwargs": [{k: v for k, v in each.items() if v is not None} for each in row["kwargs"]]}
        for row in read_rows(place, name, split)
    ]


def read_questions(place: str, name: str | None, split: str) -> list[Row]:
    """Return multi-hop questions with all their passages as one ``context``."""
    questions = read_multihop(place, None if place.endswith(LINES) else split)
    return [
        {
            "id": each.id,
            "question": each.question,
            "answer": each.answer,
            "context": "\n".join(f"{passage.title}: {passage.text}" for passage in each.passages),
        }
        for each in questions
    ]


def read_gpqa(place: str, name: str | None, split: str) -> list[Row]:
    """Return GPQA's questions with their choices in a drawn order, as ``id``, ``question`` and ``gold``, a letter."""
    path = place
    if place.endswith(".csv") and not Path(place).expanduser().is_file():
        path = str(data_root() / place)
    rows = benchmarks.gpqa(None, path=path, split=split)["examples"]
    return [{"id": row["id"], "question": row["prompt"][0]["content"], "gold": row["gold"]} for row in rows]


@lru_cache(maxsize=4)
def _read(place: str, split: str, root: str | None) -> tuple[Row, ...]:
    """Read a split below ``root`` once; the 57 subjects of MMLU share a file."""
    return tuple(split_rows(place, split))


def _root() -> str | None:
    try:
        return str(data_root())
    except DataError:
        return None  # a place may also be a whole path or a hub name; what needs the root says so when it reads
