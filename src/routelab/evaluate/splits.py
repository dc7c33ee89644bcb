"""Where a task's rows come from: a file, a directory of splits, or a hub name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from routelab.data.sources import LINES, data_root, load_rows
from routelab.errors import DataError, closest


def split_rows(path: str, split: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Rows of one split: of a file, of ``<split>.jsonl.gz`` and the like in a directory, or of a hub name.

    For a file the split's name replaces the one in its name (``test.jsonl`` → ``train.jsonl``). A relative path is
    looked up as given, then below ``ROUTELAB_DATA``.
    """
    if path.endswith(LINES):
        file = Path(path)
        name = re.sub(r"\b(train|test|validation|dev)\b", split, file.name)
        return load_rows(file.with_name(name), limit=limit)
    folder = _folder(path)
    if folder is None:
        return load_rows(path, split=split, limit=limit)
    for ending in LINES:
        if (folder / f"{split}{ending}").is_file():
            return load_rows(folder / f"{split}{ending}", limit=limit)
    found = sorted(entry.name for entry in folder.glob("*")) if folder.is_dir() else []
    raise DataError(f"{folder} holds no {split} split ({split}{LINES[0]} and the like){closest(split, found)}")


def _folder(path: str) -> Path | None:
    """The local directory that ``path`` names, or None for the hub name ``owner/name``."""
    given = Path(path).expanduser()
    if given.is_dir():
        return given
    hub = path.count("/") == 1 and not path.startswith((".", "~", "/"))
    try:
        below = data_root() / path
    except DataError:
        if hub:
            return None
        raise
    return None if hub and not below.is_dir() else below
