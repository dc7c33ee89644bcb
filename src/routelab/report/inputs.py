"""What a report is drawn from: the files of a run directory, or of a construction, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from routelab.errors import RecipeError, closest

Row = dict[str, Any]

#: The newest form of ``results.json`` and of ``certificate.json`` that can be read.
SCHEMA = 1
CONSTRUCTION = "construction"
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
CERTIFICATE = frozenset({"theorem", "eps", "claims", "neurons", "width", "least_mass", "prefixes"})


@dataclass(frozen=True)
class Run:
    """A finished run: ``results.json``, ``metrics.jsonl`` and ``manifest.json``, and which of the latter two are
    missing. Of a construction the results are its certificate."""

    folder: Path
    kind: str
    results: Row
    metrics: Sequence[Row] = ()
    manifest: Mapping[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()


def unfinished(folder: Path) -> bool:
    """Whether a folder is a run directory without results."""
    return (folder / "recipe.yaml").is_file() and not (folder / "results.json").is_file()


def read_run(folder: Path) -> Run:
    """Read a run directory, or what ``routelab construct`` wrote.

    Raises ``RecipeError`` where there are no results, and naming the first file that is damaged, incomplete or of a
    newer version, with how to get it back. ``metrics.jsonl`` and ``manifest.json`` may be missing.
    """
    results = folder / "results.json"
    if not results.is_file():
        if (folder / "certificate.json").is_file():
            return Run(folder, CONSTRUCTION, _certificate(folder / "certificate.json"))
        raise RecipeError(
            f"{folder} holds no results.json: it is no run directory, or its run is not finished; "
            "finish it with: routelab run RECIPE --out FOLDER --resume"
        )
    values = _row(_text(results), results, frozenset())
    _require_readable(results, values.get("schema", SCHEMA))
    kind = values.get("kind", "training")
    if kind not in RESULTS:
        raise RecipeError(f"{results} is of the kind {kind!r}, which this version cannot show{closest(kind, RESULTS)}")
    values = _row(_text(results), results, RESULTS[kind])
    wanted = ["metrics.jsonl", "manifest.json"] if kind == "training" else ["manifest.json"]
    missing = [name for name in wanted if not (folder / name).is_file()]
    metrics, manifest = folder / "metrics.jsonl", folder / "manifest.json"
    rows, made = [], {}
    if kind == "training" and metrics.name not in missing:
        rows = [_row(line, metrics, METRICS) for line in _text(metrics).splitlines()]
    if manifest.name not in missing:
        made = _row(_text(manifest), manifest, MANIFEST)
    return Run(folder, kind, values, rows, made, missing)


def incomplete(run: Run, key: object) -> RecipeError:
    """Return the error of results that lack a key further inside, as those of an older version may."""
    return _unusable(run.folder / "results.json", f"lacks {key}")


def _certificate(path: Path) -> Row:
    values = _row(_text(path), path, frozenset())
    _require_readable(path, values.get("format", SCHEMA))
    return _row(_text(path), path, CERTIFICATE)


def _require_readable(path: Path, schema: Any) -> None:
    if not isinstance(schema, int) or schema > SCHEMA:
        raise RecipeError(
            f"{path} was written by a newer version (schema {schema!r}; this one reads up to {SCHEMA}): upgrade "
            "routelab"
        )


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
    if path.name == "certificate.json":
        return RecipeError(f"{path} {why}; construct the model again")
    again = f"routelab run {run / 'recipe.yaml'} --out {run} --resume"
    if not (run / "recipe.yaml").is_file():
        return RecipeError(f"{path} {why}; run the study again, or give --resume to a run that wrote it")
    return RecipeError(f"{path} {why}; delete it and have it written again with: {again}")
