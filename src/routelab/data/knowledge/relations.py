"""Real relations: the ParaRel and BEAR files below ``ROUTELAB_DATA``."""

from __future__ import annotations

from pathlib import Path

from routelab.data.knowledge.jsonl import read_knowledge
from routelab.data.knowledge.language import Knowledge, Task
from routelab.data.sources import data_root
from routelab.errors import DataError, closest

FILES = {"bear": "bear/relations.jsonl.gz", "pararel": "pararel/relations.jsonl.gz"}


def read_relations(source: str = "both", root: Path | None = None) -> Knowledge:
    """Return the relations of ``"bear"``, of ``"pararel"``, or of ``"both"``: BEAR's, and those that only ParaRel has.

    Raises:
        DataError: another source, or the files are not there.
    """
    if source not in (*FILES, "both"):
        raise DataError(f"unknown relations {source!r}{closest(source, [*FILES, 'both'])}")
    folder = data_root() if root is None else root
    tasks: dict[str, Task] = {}
    for name in FILES if source == "both" else [source]:
        for task in read_knowledge(folder / FILES[name]).tasks:
            tasks.setdefault(task.name, task)
    return Knowledge(tuple(tasks.values()))
