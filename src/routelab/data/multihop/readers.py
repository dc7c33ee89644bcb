"""HotpotQA and 2WikiMultiHopQA rows, from their own files and from the hub, as questions over passages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routelab.data.sources import load_rows
from routelab.errors import DataError


@dataclass(frozen=True)
class Passage:
    """A titled paragraph; ``text`` is what a model reads of it."""

    title: str
    text: str


@dataclass(frozen=True)
class MultiHopQuestion:
    """A question, its passages, and which of them (indices) hold its evidence."""

    id: str
    question: str
    answer: str
    passages: tuple[Passage, ...]
    evidence: tuple[int, ...]
    kind: str


def read_multihop(
    path_or_hub: str | Path, split: str | None = None, limit: int | None = None
) -> list[MultiHopQuestion]:
    """Read questions in one of the forms in which HotpotQA and 2WikiMultiHopQA are given out.

    ``context`` is a list of ``[title, sentences]``, or an object with the lists ``title`` and ``sentences``
    (2WikiMultiHopQA on the hub: ``content``), or the JSON text of either; ``supporting_facts`` likewise, with the
    sentence numbers in ``sent_id``. Sentences are joined as they are where they bring their own space, else by one.

    Args:
        path_or_hub, split, limit: as in :func:`routelab.data.sources.load_rows`.

    Raises:
        DataError: a row lacks a field, has no passages, or names evidence that is none of its passages.
    """
    rows = load_rows(path_or_hub, split, limit)
    return [_question(row, f"{path_or_hub}, row {number}") for number, row in enumerate(rows, start=1)]


def _question(row: Mapping[str, Any], where: str) -> MultiHopQuestion:
    missing = [name for name in ("question", "answer", "context", "supporting_facts") if name not in row]
    if missing:
        raise DataError(f"{where}: no field {missing[0]!r}; it has {', '.join(sorted(row))}")
    passages = tuple(
        Passage(title, _join(sentences))
        for title, sentences in _pairs(row["context"], ("sentences", "content"), f"{where}, context")
    )
    if not passages:
        raise DataError(f"{where}: there are no passages in its context")
    titles = [passage.title for passage in passages]
    wanted = [title for title, _ in _pairs(row["supporting_facts"], ("sent_id",), f"{where}, supporting_facts")]
    strangers = [title for title in wanted if title not in titles]
    if strangers:
        raise DataError(f"{where}: its evidence {strangers[0]!r} is none of its passages {titles}")
    return MultiHopQuestion(
        id=str(row.get("id", row.get("_id", where))),
        question=str(row["question"]).strip(),
        answer=str(row["answer"]).strip(),
        passages=passages,
        evidence=tuple(sorted({titles.index(title) for title in wanted})),
        kind=str(row.get("type", "")),
    )


def _pairs(value: Any, names: Sequence[str], where: str) -> list[tuple[str, Any]]:
    """Return ``(title, what belongs to it)`` from a list of pairs, from parallel lists, or from the JSON of either."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: not JSON ({error})") from error
    if isinstance(value, Mapping):
        name = next((name for name in names if name in value), None)
        if name is None or "title" not in value or len(value["title"]) != len(value[name]):
            raise DataError(f"{where}: expected lists 'title' and {names[0]!r} of one length")
        return [(str(title), rest) for title, rest in zip(value["title"], value[name], strict=True)]
    if not isinstance(value, Sequence) or any(isinstance(pair, str) or len(pair) != 2 for pair in value):
        raise DataError(f"{where}: expected pairs [title, {names[0]}]")
    return [(str(title), rest) for title, rest in value]


def _join(sentences: Sequence[str]) -> str:
    text = ""
    for sentence in sentences:
        text += sentence if not text or sentence[:1].isspace() else f" {sentence}"
    return text.strip()
