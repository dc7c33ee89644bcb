"""Knowledge as JSON Lines: one task a line, ``{"relation", "templates": [...], "pairs": [[subject, object], ...]}``."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from routelab.data.knowledge.language import Knowledge, Task, Template
from routelab.errors import DataError, closest

FIELDS = ("relation", "templates", "pairs")


def read_knowledge(path: str | Path) -> Knowledge:
    """Read a ``.jsonl`` or ``.jsonl.gz`` file. Placeholders are ``⋆1`` and ``⋆2``, or ``[X]`` and ``[Y]``.

    Raises:
        DataError: naming the file, the line and the field of what is wrong.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            lines = [(number, line) for number, line in enumerate(file, start=1) if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not lines:
        raise DataError(f"{path} holds no relation")
    tasks: dict[str, Task] = {}
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: not JSON ({error})") from error
        task = task_of(row, where)
        if task.name in tasks:
            raise DataError(f"{where}, field relation: {task.name!r} was read before")
        tasks[task.name] = task
    return Knowledge(tuple(tasks.values()))


def task_of(row: Any, where: str) -> Task:
    """Return the task of one row. Templates and pairs are sets; further fields are allowed and left alone."""
    if not isinstance(row, dict):
        raise DataError(f"{where}: a row is a JSON object, not {type(row).__name__}")
    for field in FIELDS:
        if field not in row:
            raise DataError(f"{where}: field {field} is missing{closest(field, row)}")
    name = row["relation"]
    if not isinstance(name, str) or not name:
        raise DataError(f"{where}, field relation: a name, not {name!r}")
    templates = []
    for i, text in enumerate(_list(row, "templates", where)):
        if not isinstance(text, str):
            raise DataError(f"{where}, field templates.{i}: a template is text, not {text!r}")
        try:
            templates.append(Template.parse(text))
        except DataError as error:
            raise DataError(f"{where}, field templates.{i}: {error}") from error
    pairs = []
    for i, pair in enumerate(_list(row, "pairs", where)):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
            raise DataError(f"{where}, field pairs.{i}: a pair is [subject, object], both text, not {pair!r}")
        pairs.append((pair[0], pair[1]))
    try:
        return Task(name, tuple(dict.fromkeys(templates)), tuple(dict.fromkeys(pairs)))
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def write_knowledge(knowledge: Knowledge, path: str | Path) -> None:
    """Write the file that :func:`read_knowledge` reads back equal."""
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for task in knowledge.tasks:
            row = {"relation": task.name, "templates": [str(each) for each in task.templates], "pairs": task.pairs}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    os.replace(temporary, path)


def _list(row: dict[str, Any], field: str, where: str) -> list[Any]:
    value = row[field]
    if not isinstance(value, list) or not value:
        raise DataError(f"{where}, field {field}: a list with at least one entry, not {value!r}")
    return value
