"""Knowledge as JSON Lines: one task a line, ``{"relation", "templates": [...], "pairs": [[subject, object], ...]}``."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from routelab.data.knowledge.language import Knowledge, Task, check_name, repeated
from routelab.data.knowledge.template import Template
from routelab.errors import DataError, closest

FIELDS = ("relation", "templates", "pairs")


def read_knowledge(path: str | Path) -> Knowledge:
    """Read a file of :func:`write_knowledge` or of one's own; gzipped where its name ends in ``.gz``.

    Placeholders are ``⋆1`` and ``⋆2``, or ``[X]`` and ``[Y]``. Further fields are left alone, and so are empty lines.

    Raises:
        DataError: naming the file, the line and the field of what is wrong.
    """
    tasks: dict[str, Task] = {}
    for where, row in rows_of(Path(path)):
        task = task_of(row, where)
        if task.name in tasks:
            raise DataError(f"{where}, field relation: {task.name!r} is the name of an earlier line")
        tasks[task.name] = task
    return Knowledge(tuple(tasks.values()))


def write_knowledge(knowledge: Knowledge, path: str | Path) -> None:
    """Write the file that :func:`read_knowledge` reads back equal, gzipped where its name ends in ``.gz``."""
    path = Path(path)
    rows = (
        {"relation": task.name, "templates": [str(each) for each in task.templates], "pairs": task.pairs}
        for task in knowledge.tasks
    )
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    os.replace(temporary, path)


def rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the parsed lines of a file, each with where it stands.

    Raises:
        DataError: the file cannot be read or holds no line, or a line is not JSON.
    """
    found = False
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found = True
                    where = f"{path}, line {number}"
                    yield where, _parsed(line, where)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not found:
        raise DataError(f"{path} holds no relation")


def task_of(row: Any, where: str) -> Task:
    """Return the task of one row; an error begins with ``where`` and names the field."""
    if not isinstance(row, dict):
        raise DataError(f"{where}: a relation is a JSON object, not {type(row).__name__}")
    for field in FIELDS:
        if field not in row:
            raise DataError(f"{where}: the field {field} is missing{closest(field, row)}")
    name = row["relation"]
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{where}, field relation: a name is text, not {name!r}")
    templates = [_template(text, at) for at, text in _entries(row, "templates", where)]
    pairs = [_pair(pair, at) for at, pair in _entries(row, "pairs", where)]
    for field, twice in (("templates", repeated(templates)), ("pairs", repeated(pairs))):
        if twice is not None:
            raise DataError(f"{where}, field {field}[{twice}]: {row[field][twice]!r} is there before")
    return Task(name, tuple(templates), tuple(pairs))


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error})") from error


def _entries(row: dict[str, Any], field: str, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list, each with where it stands."""
    entries = row[field]
    if not isinstance(entries, list) or not entries:
        what = "empty" if entries == [] else f"{type(entries).__name__}, not a list"
        raise DataError(f"{where}, field {field}: the list is {what}; a relation has at least one entry in it")
    for index, entry in enumerate(entries):
        yield f"{where}, field {field}[{index}]", entry


def _template(text: Any, where: str) -> Template:
    if not isinstance(text, str):
        raise DataError(f"{where}: a template is text, not {text!r}")
    try:
        return Template.parse(text)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _pair(pair: Any, where: str) -> tuple[str, str]:
    if not isinstance(pair, list) or not all(isinstance(name, str) for name in pair):
        raise DataError(f"{where}: a pair is [subject, object], both text, not {pair!r}")
    if len(pair) != 2:
        raise DataError(f"{where}: a pair is [subject, object]; {pair!r} has {len(pair)} entries, not 2")
    for name in pair:
        try:
            check_name(name)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    return pair[0], pair[1]
