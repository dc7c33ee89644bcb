"""Rows from local files and from the hub, always as a list of dictionaries."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from routelab.errors import DataError, closest

Row = dict[str, Any]
LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")


def data_root() -> Path:
    """The directory that the environment variable ``ROUTELAB_DATA`` names; :class:`DataError` where there is none."""
    value = os.environ.get("ROUTELAB_DATA")
    if not value:
        raise DataError("ROUTELAB_DATA is not set; point it at the directory that holds gsm8k/, sft/, …")
    root = Path(value).expanduser()
    if not root.is_dir():
        raise DataError(f"ROUTELAB_DATA names {root}, which is not a directory")
    return root


def load_rows(path_or_hub: str | Path, split: str | None = None, limit: int | None = None) -> list[Row]:
    """Load rows from a file, from a file below ``ROUTELAB_DATA``, or from a data set of the hub.

    ``path_or_hub`` is a file by ending (``.jsonl``, ``.jsonl.gz``, ``.json``, ``.json.gz``, ``.parquet``), looked up as
    given and then below :func:`data_root`; a name without such an ending, ``owner/name`` or ``owner/name:config``, is
    read from the hub with ``datasets``. ``split`` belongs to hub names (default ``"train"``); a file has no splits.
    ``limit`` keeps the first rows.

    Raises:
        DataError: file missing, empty or malformed (with its line), a split asked of a file, an unreachable hub name.
    """
    if limit is not None and limit < 1:
        raise DataError(f"a limit keeps at least one row, got {limit}")
    name = str(path_or_hub)
    if not name.endswith(LINES):
        return _from_hub(name, split or "train", limit)
    if split is not None:
        raise DataError(f"{name} is a file and has no split {split!r}; name the file of that split instead")
    path = _find(Path(path_or_hub).expanduser())
    rows = list(islice(_from_file(path), limit))
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def _find(path: Path) -> Path:
    """``path`` itself, or ``path`` below the data root if it is relative and only exists there."""
    if path.is_file():
        return path
    if path.is_absolute():
        siblings = (p.name for p in path.parent.glob("*")) if path.parent.is_dir() else ()
        raise DataError(f"no data file {path}{closest(path.name, siblings)}")
    root = data_root()
    if (root / path).is_file():
        return root / path
    files = (str(p.relative_to(root)) for p in root.glob("*/*") if p.name.endswith(LINES))
    raise DataError(f"no data file {path}, neither here nor in ROUTELAB_DATA ({root}){closest(str(path), files)}")


def _from_file(path: Path) -> Iterator[Row]:
    if path.name.endswith(".parquet"):
        yield from _from_parquet(path)
        return
    try:
        with _open(path) as file:
            if ".jsonl" in path.name:
                yield from _from_lines(path, file)
            else:
                yield from _from_array(path, file)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _open(path: Path) -> TextIO:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _from_lines(path: Path, file: TextIO) -> Iterator[Row]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error})") from error
        yield _row(row, f"{path}, line {number}")


def _from_array(path: Path, file: TextIO) -> Iterator[Row]:
    try:
        rows = json.load(file)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not JSON ({error})") from error
    if not isinstance(rows, list):
        raise DataError(f"{path} holds one JSON {type(rows).__name__}; expected a list of objects")
    for number, row in enumerate(rows):
        yield _row(row, f"{path}, item {number}")


def _row(row: Any, where: str) -> Row:
    if not isinstance(row, dict):
        raise DataError(f"{where}: a row is a JSON object, not {type(row).__name__}")
    return row


def _from_parquet(path: Path) -> Iterator[Row]:
    from datasets import Dataset

    try:
        table = Dataset.from_parquet(str(path))
    except Exception as error:  # pyarrow and datasets raise many kinds; all mean that the file is unreadable
        raise DataError(f"cannot read {path}: {error}") from error
    yield from table


def _from_hub(name: str, split: str, limit: int | None) -> list[Row]:
    from datasets import load_dataset

    repository, _, config = name.partition(":")
    try:
        table = load_dataset(repository, config or None, split=split)
    except Exception as error:  # no network, no such name, no such split: the hub's own text says which
        raise DataError(
            f"cannot load {name!r} (split {split!r}) from the hub: {error}; "
            f"a local file must end in one of {', '.join(LINES)}"
        ) from error
    return list(table.select(range(min(limit, len(table)))) if limit else table)
