"""What a report is drawn from: the files of a run directory, or of a construction, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from routelab.errors import RecipeError, closest
from routelab.report.page import facts, started
from routelab.stored import host_digest, json_lines, kind_of, parse_json, shaped

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
    missing. Of a construction the results are its certificate. ``data`` has the hash of the examples of every task
    whose records tell it."""

    folder: Path
    kind: str
    results: Row
    metrics: Sequence[Row] = ()
    manifest: Mapping[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """The file that the results are from."""
        return self.folder / ("certificate.json" if self.kind == CONSTRUCTION else "results.json")


def unfinished(folder: Path) -> bool:
    """Whether a folder is a run directory without results."""
    return (folder / "recipe.yaml").is_file() and not (folder / "results.json").is_file()


def source_of(folder: Path) -> Path:
    """Return the file that a folder's results are in; raises ``RecipeError`` where there is none."""
    for name in ("results.json", "certificate.json"):
        if (folder / name).is_file():
            return folder / name
    raise RecipeError(
        f"{folder} holds no results.json: it is no run directory, or its run is not finished; "
        "finish it with: routelab run RECIPE --out FOLDER --resume"
    )


def read_run(folder: Path) -> Run:
    """Read a run directory, or what ``routelab construct`` wrote.

    Raises ``RecipeError`` where there are no results, and naming the first file that is damaged, incomplete or of a
    newer version, with how to get it back. ``metrics.jsonl`` and ``manifest.json`` may be missing.
    """
    results = source_of(folder)
    if results.name == "certificate.json":
        return Run(folder, CONSTRUCTION, _certificate(results))
    values = _object(_text(results), results)
    _require_readable(results, values.get("schema", SCHEMA))
    kind = kind_of(values)
    if not isinstance(kind, str) or kind not in RESULTS:
        raise RecipeError(f"{results} is of the kind {kind!r}, which this version cannot show{closest(kind, RESULTS)}")
    _require(values, RESULTS[kind], results)
    wanted = ["metrics.jsonl", "manifest.json"] if kind == "training" else ["manifest.json"]
    missing = [name for name in wanted if not (folder / name).is_file()]
    metrics, manifest = folder / "metrics.jsonl", folder / "manifest.json"
    rows = _metrics(metrics) if kind == "training" and metrics.name not in missing else []
    made = _manifest(manifest) if manifest.name not in missing else {}
    with reading(results):
        data = _data(folder, values) if kind == "training" else {}
    return Run(folder, kind, values, rows, made, missing, data)


def reading(path: Path) -> AbstractContextManager[None]:
    """Use what a file of a run holds; where that has another shape than a run writes, the file is named."""
    return shaped(lambda why: _unusable(path, why))


def _metrics(path: Path) -> list[Row]:
    rows = []
    for line in json_lines(_text(path)):
        row = _object(line, path)
        _require(row, METRICS, path)
        with reading(path):
            int(row["step"]), float(row.get("loss", 0))
        rows.append(row)
    return rows


def _manifest(path: Path) -> Row:
    """Read a manifest, and once as pages do: what fails later is then not its fault."""
    made = _object(_text(path), path)
    _require(made, MANIFEST, path)
    with reading(path):
        facts(made), started(made), host_digest(made)
    return made


def _data(folder: Path, results: Row) -> dict[str, str]:
    """Return the hash of every task's examples, from the records of the host, where they are kept."""
    found: dict[str, str] = {}
    for task in results["tasks"]:
        records = folder / "records" / "base" / f"{task['task']}.json"
        if records.is_file():
            digest = _object(_text(records), records).get("data_sha256")
            found |= {task["task"]: str(digest)} if digest else {}
    return found


def _certificate(path: Path) -> Row:
    values = _object(_text(path), path)
    _require_readable(path, values.get("format", SCHEMA))
    _require(values, CERTIFICATE, path)
    return values


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


def _object(text: str, path: Path) -> Row:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise _unusable(path, f"is damaged or cut off ({error})") from error
    if not isinstance(value, dict):
        raise _unusable(path, f"holds {type(value).__name__} where keys and values belong")
    found: Row = value
    return found


def _require(values: Row, keys: frozenset[str], path: Path) -> None:
    missing = sorted(keys - set(values))
    if missing:
        raise _unusable(path, f"lacks {', '.join(missing)}")


def _unusable(path: Path, why: str) -> RecipeError:
    run = next((each for each in path.parents if each.name == "records"), path).parent
    if path.name == "certificate.json":
        return RecipeError(f"{path} {why}; construct the model again")
    again = f"routelab run {run / 'recipe.yaml'} --out {run} --resume"
    if not (run / "recipe.yaml").is_file():
        return RecipeError(f"{path} {why}; run the study again, or give --resume to a run that wrote it")
    return RecipeError(f"{path} {why}; delete it and have it written again with: {again}")
