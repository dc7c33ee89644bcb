"""What a report is drawn from: the three files of a run directory, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from routelab.errors import RecipeError, closest

Row = dict[str, Any]

_HEAD = frozenset({"name", "title", "note", "seeds", "commands"})

#: The keys that the report of a kind of run reads, of which a file cut or edited by hand may lack some.
RESULTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "training": _HEAD | {"host", "control", "headline", "tasks", "base", "arms", "comparisons", "same_batches"},
        "modes": _HEAD | {"host", "control", "task", "base", "arms", "comparisons", "corpus", "interference"},
        "table1": _HEAD | {"cells", "failed", "planned", "settings"},
        "study": frozenset({"study", "title", "host", "found", "commands"}),
        "working-sets": _HEAD | {"host", "num_steps", "wise", "conditions", "source", "contexts"},
    }
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
    values = _row(_text(results), results, frozenset())
    kind = values.get("kind", "training")
    if kind not in RESULTS:
        raise RecipeError(f"{results} is of the kind {kind!r}, which this version cannot show{closest(kind, RESULTS)}")
    values = _row(_text(results), results, RESULTS[kind])
    metrics, manifest = folder / "metrics.jsonl", folder / "manifest.json"
    lines = _text(metrics).splitlines() if kind == "training" else []
    rows = [_row(line, metrics, METRICS) for line in lines]
    return values, rows, _row(_text(manifest), manifest, MANIFEST)


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
    if not isinstance(value, dict):
        raise _unusable(path, f"holds {type(value).__name__} where keys and values belong")
    missing = sorted(keys - set(value))
    if missing:
        raise _unusable(path, f"lacks {', '.join(missing)}")
    found: Row = value
    return found


def _unusable(path: Path, why: str) -> RecipeError:
    run = path.parent
    again = f"routelab run {run / 'recipe.yaml'} --out {run} --resume"
    return RecipeError(f"{path} {why}; delete it and have it written again with: {again}")
