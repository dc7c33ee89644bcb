"""Two results on the same examples: paired differences with intervals, and the answers that changed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from routelab.errors import EvaluationError
from routelab.evaluate.result_files import Measured, Origin, ResultSet, read_results
from routelab.evaluate.stats import (
    Interval,
    average_seeds,
    paired_bootstrap_over_own_seeds,
    paired_bootstrap_over_seeds,
)
from routelab.stored import host_name

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
    require_one_host(ours, theirs)
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


def require_one_host(ours: ResultSet | Origin, theirs: ResultSet | Origin) -> None:
    """A difference between hosts is no effect of routing. Equal weights are one host, whatever it is called; where they
    are not known of both, the name is what there is.

    Raises:
        EvaluationError: the two hosts, and what they differ in.
    """
    names = [host_name(each.host.get("name", "unknown")) for each in (ours, theirs)]
    both = ours.host.keys() & theirs.host.keys()
    differing = [key for key in both - {"name"} if ours.host[key] != theirs.host[key]]
    if not differing and ("weights" in both or "name" not in both or names[0] == names[1]):
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
    pairs = _pairs(first, second)
    changes = [change for i, j in pairs for change in _changes(first, second, i, j)]
    return {
        "first": sum(a.values()) / len(a),
        "second": sum(b.values()) / len(b),
        "difference": asdict(interval),
        "verdict": {1: "first", -1: "second", 0: "undecided"}[better],
        "gained": sum(sign * (a[name] - b[name]) > 0 for name in a),
        "lost": sum(sign * (a[name] - b[name]) < 0 for name in a),
        "answers": sum(len(first.answers[i]) for i, _ in pairs),
        "changed": len(changes) if pairs else None,
        "examples": changes[:_SHOWN],
    }


def _interval(first: Measured, second: Measured, resamples: int, seed: int) -> Interval:
    """Pair seeds where both have the same; else each side's seeds are its own."""
    if set(first.seeds) == set(second.seeds):
        several = len(first.seeds) > 1
        paired = [second.scores[second.seeds.index(each)] for each in first.seeds]
        return paired_bootstrap_over_seeds(first.scores, paired, resample_seeds=several, resamples=resamples, seed=seed)
    return paired_bootstrap_over_own_seeds(first.scores, second.scores, resamples=resamples, seed=seed)


def _pairs(first: Measured, second: Measured) -> list[tuple[int, int]]:
    """Return which of the answers stand beside each other: those of a common seed; one without seeds, as of the host,
    stands beside every seed."""
    if not first.answers or not second.answers:
        return []
    ours, theirs = enumerate(first.seeds), list(enumerate(second.seeds))
    return [(i, j) for i, a in ours for j, b in theirs if a == b or a is None or b is None]


def _changes(first: Measured, second: Measured, i: int, j: int) -> list[dict[str, Any]]:
    """Return every answer that differs between one seed of each."""
    ours, theirs = first.answers[i], second.answers[j]
    return [
        {
            "id": name,
            "seeds": [first.seeds[i], second.seeds[j]],
            "first": ours.get(name),
            "second": theirs.get(name),
            "first_score": first.scores[i][name],
            "second_score": second.scores[j][name],
        }
        for name in first.scores[i]
        if ours.get(name) != theirs.get(name)
    ]


def _differing(ours: ResultSet, theirs: ResultSet, tasks: set[str]) -> list[dict[str, Any]]:
    found = []
    for name in dict.fromkeys([*ours.settings, *theirs.settings]):
        a, b = ours.settings.get(name), theirs.settings.get(name)
        if a != b and (not name.startswith("task ") or name.split(" ")[1] in tasks):
            found.append({"setting": name, "first": a, "second": b})
    return found


def _named(results: ResultSet) -> str:
    return ", ".join(" ".join(key) for key in results.measured)
