"""What several runs can be laid side by side in: every number that a run has of an arm on a task of a host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routelab.report.inputs import Run
from routelab.report.theme import Metric, metric_of
from routelab.stored import host_digest, host_name

_ACCURACY = Metric("accuracy", 100.0, 1, "%", "points")
_REFLECTIVE = Metric("reflective words", 1.0, 2, "", "words")
_F1 = Metric("F1", 100.0, 1, "", "points")
#: 97.5th percentile of the normal distribution, for Wilson's interval.
_Z = 1.959964


@dataclass(frozen=True)
class Host:
    """A host: its name without folders, and a digest of its weights, empty where the manifest has none."""

    name: str
    digest: str = ""


@dataclass(frozen=True)
class Task:
    """What was measured: runs with equal ones are shown together. ``examples``, their number, and ``data``, their hash,
    are None where they are not known."""

    host: Host
    name: str
    metric: Metric
    examples: int | None
    data: str | None = None


@dataclass(frozen=True)
class Measure:
    """One arm of a run on a task.

    Attributes:
        seeds: its value with every seed.
        main: whether it is the arm that the run is about.
        control: whether the others of its run are compared with it.
        difference: its difference from the control on the same examples, as (mean, low, high), where there is one.
    """

    task: Task
    arm: str
    seeds: Sequence[float]
    main: bool
    control: bool
    difference: tuple[float, float, float] | None = None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return sum(self.seeds) / len(self.seeds)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95% interval of an accuracy over its examples; None for anything else."""
        n = self.task.examples
        if self.task.metric.label != "accuracy" or not n:
            return None
        centre = (self.mean + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(self.mean * (1 - self.mean) / n + _Z**2 / (4 * n * n))
        return centre - half, centre + half


def host_of(run: Run) -> Host | None:
    """Return the host of a run; None where it has none, as a table of one-layer models."""
    named = run.results.get("host")
    if not named:
        return None
    name = named["name"] if isinstance(named, Mapping) else named
    return Host(host_name(name), host_digest(run.manifest))


def measures_of(run: Run) -> list[Measure]:
    """Return what a run measured of its arms; empty for kinds that are not about arms on tasks."""
    host = host_of(run)
    if host is None:
        return []
    match run.kind:
        case "training":
            return list(_training(run, host))
        case "modes":
            return list(_modes(run.results, host))
        case "working-sets":
            return list(_working_sets(run, host))
        case _:
            return []


def by_task(measured: Mapping[str, Iterable[Measure]]) -> dict[Task, dict[str, list[Measure]]]:
    """Return the measures of every task by the name of their run, tasks of most runs first."""
    found: dict[Task, dict[str, list[Measure]]] = {}
    for name, measures in measured.items():
        for each in measures:
            found.setdefault(each.task, {}).setdefault(name, []).append(each)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _training(run: Run, host: Host) -> Iterator[Measure]:
    results = run.results
    compared = {(row["arm"], row["task"]): row for row in results["comparisons"]}
    for about in results["tasks"]:
        name = about["task"]
        task = Task(host, name, metric_of(about), about.get("examples"), run.data.get(name))
        for arm, values in results["arms"].items():
            seeds = [_number(seed["value"]) for seed in values["tasks"][name]["seeds"].values()]
            row = compared.get((arm, name))
            difference = None if row is None else _triple(row["difference"], row["low"], row["high"])
            main = arm == results["headline"]["arm"]
            yield Measure(task, arm, seeds, main, arm == results["control"], difference)


def _modes(results: Mapping[str, Any], host: Host) -> Iterator[Measure]:
    compared = {(row["arm"], row["mode"]): row["measures"] for row in results["comparisons"]}
    first = next((arm for arm in results["arms"] if arm != results["control"]), results["control"])
    for mode, key, metric in (
        ("no_think", "reflective", _REFLECTIVE),
        ("no_think", "accuracy", _ACCURACY),
        ("think", "accuracy", _ACCURACY),
    ):
        task = Task(host, f"{results['task']}, told /{mode}", metric, results["base"][mode]["n"])
        for arm, values in results["arms"].items():
            seeds = [_number(seed[mode][key]) for seed in values["modes"].values()]
            found = compared.get((arm, mode), {}).get(key)
            yield Measure(task, arm, seeds, arm == first, arm == results["control"], _ends(found))


def _working_sets(run: Run, host: Host) -> Iterator[Measure]:
    results, data = run.results, run.manifest.get("data", {})
    for tokens, context in results["contexts"].items():
        name = f"{results['source']}, {tokens} tokens"
        task = Task(host, name, _F1, context["n"], str(data[name]["sha256"]) if name in data else None)
        for arm, variant in context["variants"].items():
            seeds = [_number(seed["f1"]) for seed in variant["seeds"]]
            found = variant.get("from full", {}).get("f1")
            yield Measure(task, arm, seeds, arm == "wise", arm == "full", _ends(found))


def _ends(found: Mapping[str, float] | None) -> tuple[float, float, float] | None:
    return None if found is None else _triple(found["mean"], found["low"], found["high"])


def _triple(mean: Any, low: Any, high: Any) -> tuple[float, float, float]:
    return _number(mean), _number(low), _number(high)


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} where a number belongs")
    return value
