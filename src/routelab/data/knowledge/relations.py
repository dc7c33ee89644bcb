"""Real relations: the ParaRel and BEAR files below ``ROUTELAB_DATA``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from routelab.data.knowledge.jsonl import rows_of, task_of
from routelab.data.knowledge.language import Knowledge, Task
from routelab.data.knowledge.template import words_of
from routelab.data.sources import data_root
from routelab.errors import DataError, closest

FILES = {"bear": "bear/relations.jsonl.gz", "pararel": "pararel/relations.jsonl.gz"}
SOURCES = (*FILES, "both")


def read_relations(source: str = "pararel", root: str | Path | None = None) -> Knowledge:
    """Return the relations of ParaRel, of BEAR, or of both: BEAR's, then those that only ParaRel has.

    The published files are taken as they are but for three things: white space around names is dropped, a template that
    then says the same words as an earlier one of its relation is left out, and so is a pair that is there twice.

    Args:
        source: ``"pararel"``, ``"bear"`` or ``"both"``.
        root: the directory that holds ``pararel/`` and ``bear/``; default :func:`routelab.data.data_root`.

    Raises:
        DataError: another source, or a file that is missing or malformed.
    """
    if source not in SOURCES:
        raise DataError(f"no relations are called {source!r}{closest(source, SOURCES)}")
    folder = data_root() if root is None else Path(root)
    tasks: dict[str, Task] = {}
    for name in FILES if source == "both" else (source,):
        for where, row in rows_of(folder / FILES[name]):
            task = task_of(_tidy(row), where)
            tasks.setdefault(task.name, task)
    return Knowledge(tuple(tasks.values()))


def _tidy(row: Any) -> Any:
    """Drop repetitions and outer white space; a row of another shape is left for the validator to refuse."""
    try:
        templates = list({words_of(text): text for text in reversed(row["templates"])}.values())[::-1]
        pairs = list(dict.fromkeys((subject.strip(), object_.strip()) for subject, object_ in row["pairs"]))
    except (AttributeError, DataError, KeyError, TypeError, ValueError):
        return row
    return {**row, "templates": templates, "pairs": [list(pair) for pair in pairs]}
