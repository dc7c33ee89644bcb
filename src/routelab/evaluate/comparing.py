"""Two results on the same examples: paired differences with intervals, and the answers that changed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from routelab.errors import EvaluationError
from routelab.evaluate.result_files import Measured, ResultSet, read_results
from routelab.evaluate.stats import Interval, average_seeds, paired_bootstrap, paired_bootstrap_over_seeds

_SHOWN = 10


def compare_results(first: str, second: str, *, resamples: int = 9999, seed: int = 0) -> dict[str, Any]:
    """Compare two results example by example, on everything that both measured, as plain data.

    ``tasks``: for each task and metric the two values, ``difference`` (first − second, with its bootstrap interval and
    what that covers), ``verdict`` (``first``, ``second`` or ``undecided``: which is better by an interval that leaves
    out 0), ``changed`` (answers that differ, of ``answers``), ``gained`` and ``lost`` (examples that are better in the
    first, and in the second), and some ``examples`` of changes. ``settings``: what the two were run with, where it
    differs. ``only_first`` and ``only_second``: measured in one of the two.

    Args:
        first, second: as :func:`routelab.evaluate.result_files.read_results` takes them.

    Raises:
        EvaluationError: the two are of different hosts or data, measured nothing in common, or not the same examples;
            or one cannot be read, holds no records, or was written by a newer version.
    """
    ours, theirs = read_results(first), read_results(second)
    _require_one_host(ours, theirs)
    common = [key for key in ours.measured if key in theirs.measured]
    if not common:
        raise EvaluationError(f"{first} and {second} measured nothing in common: {_named(ours)}; {_named(theirs)}")
    return {
        "first": first,
        "second": second,
        "host": ours.host,
        "tasks": [
            {"task": task, "metric": metric, **_compared(task, ours, theirs, (task, metric), resamples, seed)}
            for task, metric in common
        ],
        "settings": _differing(ours, theirs, {task for task, _ in common}),
        "only_first": [" ".join(key) for key in ours.measured if key not in theirs.measured],
        "only_second": [" ".join(key) for key in theirs.measured if key not in ours.measured],
    }


def _require_one_host(ours: ResultSet, theirs: ResultSet) -> None:
    """A difference between hosts is no effect of routing."""
    names = [Path(str(each.host["name"])).name for each in (ours, theirs)]
    differing = [key for key in ours.host.keys() & theirs.host.keys() - {"name"} if ours.host[key] != theirs.host[key]]
    if names[0] == names[1] and not differing:
        return
    first, second = (
        f"{each.where} is of the host {', '.join([name, *(f'{key} {each.host[key]}' for key in sorted(differing))])}"
        for name, each in zip(names, (ours, theirs), strict=True)
    )
    raise EvaluationError(f"{first} and {second}: a comparison needs one host")


def _compared(
    task: str, ours: ResultSet, theirs: ResultSet, key: tuple[str, str], resamples: int, seed: int
) -> dict[str, Any]:
    first, second = ours.measured[key], theirs.measured[key]
    if first.data != second.data:
        raise EvaluationError(
            f"{task} had other data in {ours.where} than in {theirs.where}: SHA-256 {first.data} and {second.data}"
        )
    interval = _interval(first, second, resamples, seed)
    sign = 1 if first.higher_is_better else -1
    better = sign * (int(interval.low > 0) - int(interval.high < 0))
    a, b = average_seeds(first.scores), average_seeds(second.scores)
    changes = _changes(first, second)
    return {
        "first": sum(a.values()) / len(a),
        "second": sum(b.values()) / len(b),
        "difference": asdict(interval),
        "verdict": {1: "first", -1: "second", 0: "undecided"}[better],
        "gained": sum(sign * (a[name] - b[name]) > 0 for name in a),
        "lost": sum(sign * (a[name] - b[name]) < 0 for name in a),
        "answers": max(sum(map(len, each.answers)) for each in (first, second)),
        "changed": len(changes) if first.answers and second.answers else None,
        "examples": changes[:_SHOWN],
    }


def _interval(first: Measured, second: Measured, resamples: int, seed: int) -> Interval:
    """Pair seeds where both have the same; else compare means over seeds, which covers the examples alone."""
    if first.seeds == second.seeds:
        several = len(first.seeds) > 1
        return paired_bootstrap_over_seeds(
            first.scores, second.scores, resample_seeds=several, resamples=resamples, seed=seed
        )
    return paired_bootstrap(average_seeds(first.scores), average_seeds(second.scores), resamples=resamples, seed=seed)


def _changes(first: Measured, second: Measured) -> list[dict[str, Any]]:
    """Return every answer that differs, seed by seed; one run of the host stands beside every seed."""
    count = max(len(first.answers), len(second.answers)) if first.answers and second.answers else 0
    found = []
    for number in range(count):
        i, j = min(number, len(first.answers) - 1), min(number, len(second.answers) - 1)
        found += [
            {
                "id": name,
                "seeds": [first.seeds[i], second.seeds[j]],
                "first": said,
                "second": second.answers[j][name],
                "first_score": first.scores[i][name],
                "second_score": second.scores[j][name],
            }
            for name, said in first.answers[i].items()
            if said != second.answers[j][name]
        ]
    return found


def _differing(ours: ResultSet, theirs: ResultSet, tasks: set[str]) -> list[dict[str, Any]]:
    found = []
    for name in dict.fromkeys([*ours.settings, *theirs.settings]):
        a, b = ours.settings.get(name), theirs.settings.get(name)
        if a != b and (not name.startswith("task ") or name.split(" ")[1] in tasks):
            found.append({"setting": name, "first": a, "second": b})
    return found


def _named(results: ResultSet) -> str:
    return ", ".join(" ".join(key) for key in results.measured)
