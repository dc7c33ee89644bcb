"""What a report is drawn from: the three files of a run directory, read and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from routelab.errors import RecipeError

Row = dict[str, Any]

#: The keys that the report reads, of which a file cut or edited by hand may lack some.
RESULTS = frozenset(
    {"name", "title", "note", "host", "control", "seeds", "headline", "tasks", "base", "arms", "comparisons"}
    | {"same_batches", "commands"}
)
METRICS = frozenset({"arm", "seed", "step"})
MANIFEST = frozenset({"sessions", "seeds", "versions"})


def read_run(folder: Path) -> tuple[Row, list[Row], Row]:
    """Return ``results.json``, ``metrics.jsonl`` and ``manifest.json`` of a run directory.

    Raises ``RecipeError`` naming the first of them that is missing, damaged or incomplete, and how to get it back.
    """
    results = folder / "results.json"
    if not results.is_file():
        raise RecipeError(
            f"{folder} holds no results.json: it is no run directory, or its run is not finished; "
            "finish it with: routelab run RECIPE --out FOLDER --resume"
        )
    metrics = folder / "metrics.jsonl"
    rows = [_row(line, metrics, METRICS) for line in _text(metrics).splitlines()]
    manifest = folder / "manifest.json"
    return _row(_text(results), results, RESULTS), rows, _row(_text(manifest), manifest, MANIFEST)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, f"cannot be read ({error})") from error


def _row(text: str, path: Path, keys: frozenset[str]) -> Row:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise _unusable(path, f"is damaged or cut off ({error})") from error
    missing = sorted(keys - set(value)) if isinstance(value, dict) else sorted(keys)
    if missing:
        raise _unusable(path, f"lacks {', '.join(missing)}")
    found: Row = value
    return found


def _unusable(path: Path, why: str) -> RecipeError:
    run = path.parent
    again = f"routelab run {run / 'recipe.yaml'} --out {run} --resume"
    return RecipeError(f"{path} {why}; delete it and have it written again with: {again}")
