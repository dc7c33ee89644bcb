"""What was measured, from the three forms in which results lie on disk: a run directory, the output of
``routelab evaluate --out``, and that of the evaluation harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from routelab.errors import EvaluationError, closest
from routelab.stored import host_digest, json_lines, kind_of, parse_json, shaped

#: The newest forms that can be read: of a run directory's ``results.json``, and of the harness's ``config.routelab``.
RUN_SCHEMA = 1
HARNESS_SCHEMA = 1
_BASE = "base"

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """One metric of one task: for every seed the score, and where there are answers the answer, by example id.

    Attributes:
        data: hash of the examples, where it is known.
    """

    seeds: tuple[int | None, ...]
    scores: Sequence[Mapping[str, float]]
    answers: Sequence[Mapping[str, str]]
    higher_is_better: bool = True
    data: str | None = None


@dataclass(frozen=True)
class ResultSet:
    """Everything that one result holds: ``measured`` by task and metric, and the settings it was measured with. Of the
    host the name, and what else is known: its family or shape, and under ``weights`` a digest of its files."""

    where: str
    host: dict[str, Any]
    settings: dict[str, Any]
    measured: dict[tuple[str, str], Measured] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where records come from: ``host`` as in :class:`ResultSet`, as far as it is known, and the hash of the data."""

    where: str
    host: dict[str, Any]
    data: str | None


def read_origin(records: str | Path) -> Origin:
    """Return where a records file comes from, by what lies beside it: the summary that ``routelab evaluate --out``
    wrote, or that of its run directory and the run's results and manifest. What is not there is not known.

    Raises:
        EvaluationError: a file that is there is damaged.
    """
    path = Path(records)
    summary, own = path.with_name("summary.json"), path.with_suffix(".json")
    if summary.is_file():
        values = _json(summary)
        with _reading(summary):
            host = {"name": str(values["host"]), **_digest({"host": values.get("host_files", {})})}
        return Origin(str(path), host, values.get("data_sha256"))
    data = _json(own).get("data_sha256") if own.is_file() else None
    # RUN/records/<arm>/seed-<n>/<task>.jsonl, or RUN/records/base/<task>.jsonl
    run = next((folder.parent for folder in path.absolute().parents[:3] if folder.name == "records"), None)
    return Origin(str(path), _host_of(run) if run is not None else {}, data)


def _host_of(run: Path) -> dict[str, str]:
    host = _weights(run / "manifest.json")
    results = run / "results.json"
    if results.is_file():
        values = _json(results)
        with _reading(results):
            host |= {key: str(values["host"][key]) for key in ("name", "family")}
    return host


def read_results(place: str | Path) -> ResultSet:
    """Read results with their records.

    Args:
        place: a run directory, for its headline arm, or ``RUN:ARM`` for another (``RUN:base`` is the host itself); the
            directory of ``routelab evaluate --out``; a directory of the harness's results, of which the newest count,
            or one ``results_<date>.json`` of them.

    Raises:
        EvaluationError: there is nothing of the three, an arm or the records are missing, a file is damaged, or it was
            written by a newer version.
    """
    text = str(place)
    folder, _, arm = text.rpartition(":")
    if arm and not Path(text).exists() and (Path(folder) / "results.json").is_file():
        return _from_run(Path(folder), arm)
    path = Path(text)
    if (path / "results.json").is_file():
        return _from_run(path, None)
    if (path / "summary.json").is_file():
        return _from_evaluate(path)
    files = [path] if path.is_file() else sorted(path.rglob("results_*.json"), key=lambda each: each.name)
    if not files:
        raise EvaluationError(
            f"{place} holds no results: neither results.json of a run, nor summary.json of routelab evaluate, nor "
            "results_<date>.json of the harness"
        )
    return _from_harness(files[-1])


def _from_run(path: Path, arm: str | None) -> ResultSet:
    results = _json(path / "results.json")
    with _reading(path / "results.json"):
        _require_readable(path, results.get("schema", 0), RUN_SCHEMA)
        if kind_of(results) != "training":
            raise EvaluationError(f"{path} holds a {kind_of(results)!r} run; a comparison takes 'training' runs")
        arm = str(arm or results["headline"]["arm"])
        if arm != _BASE and arm not in dict(results["arms"]):
            raise EvaluationError(f"{path} has no arm {arm!r}{closest(arm, [_BASE, *results['arms']])}")
        seeds = [None] if arm == _BASE else [int(seed) for seed in results["seeds"]]
        host = {key: str(results["host"][key]) for key in ("name", "family")}
        tasks = [(str(task["task"]), str(task["metric"])) for task in results["tasks"]]
        if not seeds or not tasks:
            raise EvaluationError(f"{path / 'results.json'} has no {'tasks' if seeds else 'seeds'}")
    found = ResultSet(f"{path}:{arm}", host | _weights(path / "manifest.json"), {"arm": arm})
    for task, metric in tasks:
        folders = [path / "records" / arm / ("" if seed is None else f"seed-{seed}") for seed in seeds]
        records = [folder / f"{task}.jsonl" for folder in folders]
        summary = _json(folders[0] / f"{task}.json")
        found.measured[task, metric] = _measured(records, seeds, metric, summary)
        found.settings[f"task {task} arguments"] = summary.get("arguments")
    return found


def _weights(manifest: Path) -> dict[str, str]:
    """Return the digest of a host's files; hosts of a hub have none, and a run may have lost its manifest."""
    if not manifest.is_file():
        return {}
    values = _json(manifest)
    with _reading(manifest):
        return _digest(values)


def _digest(values: Mapping[str, Any]) -> dict[str, str]:
    digest = host_digest(values)
    return {"weights": digest} if digest else {}


def _from_evaluate(path: Path) -> ResultSet:
    summary = _json(path / "summary.json")
    with _reading(path / "summary.json"):
        task, metric = str(summary["task"]), str(summary["metric"])
        host = {"name": str(summary["host"]), **_digest({"host": summary.get("host_files", {})})}
    settings = {key: summary.get(key) for key in ("routing", "methods", "call", "chat_template_sha256")}
    settings |= {f"task {task} arguments": summary.get("arguments")}
    found = ResultSet(str(path), host, settings)
    found.measured[task, metric] = _measured([path / "records.jsonl"], [None], metric, summary)
    return found


def _measured(files: Sequence[Path], seeds: Sequence[int | None], metric: str, summary: Record) -> Measured:
    scores, answers = [], []
    for file in files:
        records = _jsonl(file)
        with _reading(file):
            scores.append(_scores(records))
            answers.append(_joined(records))
    return Measured(
        seeds=tuple(seeds),
        scores=scores,
        answers=answers if all(answers) else (),
        higher_is_better=metric != "loss",
        data=summary.get("data_sha256"),
    )


def _joined(records: Sequence[Record]) -> dict[str, str]:
    """Return all samples' answers of every example, as one text."""
    answers: dict[str, list[str]] = {}
    for record in records:
        said = record.get("answer", record.get("choice"))
        if said is not None:
            answers.setdefault(str(record["id"]), []).append(str(said))
    return {name: " | ".join(each) for name, each in answers.items()}


def _from_harness(path: Path) -> ResultSet:
    results = _json(path, ours=False)
    with _reading(path):
        return _harness_set(path, results)


def _harness_set(path: Path, results: Record) -> ResultSet:
    config = results.get("config", {})
    ours = config.get("routelab", {})
    _require_readable(path, ours.get("schema", 0), HARNESS_SCHEMA)
    name = ours.get("host") or (config.get("model_args") or {}).get("pretrained") or results.get("model_name")
    host = {"name": name, **({"shape": ours["shape"]} if ours else {}), **_digest({"host": ours.get("host_files", {})})}
    settings = {key: ours.get(key) for key in ("routing", "methods", "call", "dtype", "max_length")}
    settings |= {key: results.get(key) for key in ("system_instruction", "chat_template_sha", "fewshot_as_multiturn")}
    settings |= {key: config.get(key) for key in ("limit", "gen_kwargs", "torch_seed", "fewshot_seed")}
    found = ResultSet(str(path), host, settings)
    date = path.stem.rpartition("_")[2]
    for task, about in results.get("configs", {}).items():
        higher = results.get("higher_is_better", {}).get(task, {})
        source = json.dumps((about.get("metadata") or {}).get("source", {}).get("splits"), sort_keys=True)
        settings[f"task {task} shots"] = results.get("n-shot", {}).get(task)
        settings[f"task {task} generation"] = about.get("generation_kwargs")
        samples = path.with_name(f"samples_{task}_{date}.jsonl")
        rows = _jsonl(samples, ours=False)
        with _reading(samples):
            found.measured.update({(task, label): each for label, each in _sampled(rows, higher, source)})
    return found


def _sampled(samples: Sequence[Record], higher: Record, source: str) -> Iterator[tuple[str, Measured]]:
    for filtered in dict.fromkeys(str(sample["filter"]) for sample in samples):
        kept = [sample for sample in samples if sample["filter"] == filtered]
        for metric in kept[0]["metrics"]:
            if _number(kept[0][metric]) is None:
                continue  # a part of a figure of the whole, such as a corpus's F1
            label = metric if filtered == "none" else f"{metric} ({filtered})"
            yield (
                label,
                Measured(
                    seeds=(None,),
                    scores=[{_id(sample): _number(sample[metric]) or 0.0 for sample in kept}],
                    answers=[{_id(sample): _answer(sample) for sample in kept}],
                    higher_is_better=bool(higher.get(metric, True)),
                    data=source,
                ),
            )


def _id(sample: Record) -> str:
    """Return the number of an example and the beginning of its hash, so that other data never pairs."""
    return f"{sample['doc_id']} {str(sample['doc_hash'])[:8]}"


def _number(value: Any) -> float | None:
    """Return the score of one example, or the mean of several judgements of it; None for anything else."""
    if isinstance(value, list) and value and all(isinstance(each, bool) for each in value):
        return fmean(map(float, value))
    return float(value) if isinstance(value, int | float) else None


def _answer(sample: Record) -> str:
    """Return what was answered: the filtered text, or the number of the likeliest choice."""
    found = sample["filtered_resps"]
    if found and isinstance(found[0], list) and len(found) > 1:
        likelihoods = [float(each[0]) for each in found]
        return str(likelihoods.index(max(likelihoods)))
    return found[0] if isinstance(found[0], str) else json.dumps(found[0], ensure_ascii=False)


def _scores(records: Sequence[Record]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for record in records:
        values.setdefault(str(record["id"]), []).append(float(record["score"]))
    return {name: fmean(each) for name, each in values.items()}


def _require_readable(path: Path, schema: Any, newest: int) -> None:
    if not isinstance(schema, int) or schema > newest:
        raise EvaluationError(
            f"{path} was written by a newer version (schema {schema}; this one reads up to {newest}): upgrade routelab"
        )


def _reading(path: Path) -> AbstractContextManager[None]:
    """Use what a file holds; where that has another shape than expected, the file is named."""
    return shaped(lambda why: EvaluationError(f"{path} {why}"))


def _json(path: Path, *, ours: bool = True) -> dict[str, Any]:
    """Read JSON; ``ours`` has finite numbers only, that of the harness may have others beside the scores."""
    try:
        value = (parse_json if ours else json.loads)(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(f"{path} is missing or damaged: {error}") from error
    if not isinstance(value, dict):
        raise EvaluationError(f"{path} holds no results, but a {type(value).__name__}")
    return value


def _jsonl(path: Path, *, ours: bool = True) -> list[dict[str, Any]]:
    parse = parse_json if ours else json.loads
    try:
        return [parse(line) for line in json_lines(path.read_text(encoding="utf-8"))]
    except FileNotFoundError as error:
        raise EvaluationError(
            f"there are no records {path}: a comparison needs each example (the harness: --log_samples)"
        ) from error
    except (OSError, ValueError) as error:
        raise EvaluationError(f"the records {path} are damaged: {error}") from error
