"""What the finished cells of a sweep of points say together: scores of each, and their differences from the control."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from routelab.data.mmlu_subjects import GROUPS, group_of
from routelab.errors import TrainingError
from routelab.evaluate.evaluation import read_scores
from routelab.evaluate.splits import split_rows
from routelab.evaluate.stats import Scores, mean_sd, paired_bootstrap_over_seeds
from routelab.recipe import Recipe, TaskSpec
from routelab.rundir import BASE, RunDirectory, read_json
from routelab.sweeps.cells import CONTROL, Cell, swept_arm
from routelab.sweeps.finished import finished, require_one_origin
from routelab.sweeps.run import folder_of


def collect_sweep(
    kind: str, recipe: Recipe, cells: Sequence[Cell], folder: Path, failed: Mapping[str, str]
) -> dict[str, Any]:
    """Return every number of a sweep's finished cells as plain data.

    ``tasks``; ``host`` and ``control`` per task; ``points``: one ``{"name", "point", "tasks"}`` for each finished cell,
    with per task ``mean``, ``sd`` and ``seeds``, the ``difference`` from the control on the same examples, and, for
    MMLU, ``groups``: the same of every subject group. ``failed`` and ``planned`` say what is missing.

    Raises:
        TrainingError: the control, which all are compared with, is not finished; the message has its error.
        EvaluationError: cells were run on different hosts or data.
    """
    ended = finished(cells, folder, failed)
    control = RunDirectory(folder_of(folder, CONTROL))
    if CONTROL not in [cell.name for cell in ended]:
        raise TrainingError(f"the control of the sweep is not finished: {failed.get(CONTROL, 'run it with --resume')}")
    arm = swept_arm(recipe)
    require_one_origin(ended, folder)
    done = [cell for cell in ended if cell.name != CONTROL]
    names = {spec.task: _groups(spec) for spec in recipe.evaluate}
    base = {spec.task: read_json(control.scored(BASE, None, spec.task)) for spec in recipe.evaluate}
    theirs = {spec.task: _scores(control, recipe.control, recipe.seeds, spec.task) for spec in recipe.evaluate}
    return {
        "sweep": kind,
        "recipe": recipe.name,
        "arm": arm,
        "control_arm": recipe.control,
        "seeds": list(recipe.seeds),
        "tasks": [{"task": name, "metric": each["metric"], "examples": each["n"]} for name, each in base.items()],
        "host": {
            name: fmean(read_scores(control.scored(BASE, None, name).with_suffix(".jsonl")).values()) for name in base
        },
        "control": {name: _summary(scores) for name, scores in theirs.items()},
        "points": [_point(cell, folder, arm, recipe.seeds, theirs, names) for cell in done],
        "failed": [{"cell": name, "error": error} for name, error in failed.items()],
        "planned": len(cells),
    }


def _point(
    cell: Cell,
    folder: Path,
    arm: str,
    seeds: Sequence[int],
    control: Mapping[str, Sequence[Scores]],
    groups: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    run = RunDirectory(folder_of(folder, cell.name))
    tasks = {}
    for name, theirs in control.items():
        ours = _scores(run, arm, seeds, name)
        tasks[name] = _summary(ours) | {"difference": _difference(ours, theirs)}
        if groups[name]:
            tasks[name]["groups"] = _by_group(ours, theirs, groups[name])
    return {"name": cell.name, "point": dict(cell.point), "tasks": tasks}


def _summary(scores: Sequence[Scores]) -> dict[str, Any]:
    values = [fmean(each.values()) for each in scores]
    mean, sd = mean_sd(values)
    return {"mean": mean, "sd": sd, "seeds": values}


def _difference(ours: Sequence[Scores], theirs: Sequence[Scores]) -> dict[str, Any]:
    """The interval over examples and, with several seeds, over seeds as well."""
    return asdict(paired_bootstrap_over_seeds(ours, theirs, resample_seeds=len(ours) > 1, resamples=2000))


def _by_group(ours: Sequence[Scores], theirs: Sequence[Scores], groups: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for group in GROUPS:
        members = [name for name in ours[0] if groups.get(name) == group]
        if len(members) > 1:
            mine, others = _only(ours, members), _only(theirs, members)
            found[group] = {
                "n": len(members),
                "mean": _summary(mine)["mean"],
                "control": _summary(others)["mean"],
                "difference": _difference(mine, others),
            }
    return found


def _only(scores: Sequence[Scores], members: Iterable[str]) -> list[dict[str, float]]:
    kept = list(members)
    return [{name: each[name] for name in kept} for each in scores]


def _scores(run: RunDirectory, arm: str, seeds: Sequence[int], task: str) -> list[Scores]:
    return [read_scores(run.scored(arm, seed, task).with_suffix(".jsonl")) for seed in seeds]


def _groups(spec: TaskSpec) -> dict[str, str]:
    """The subject group of every example of an MMLU task by its id; empty for other tasks."""
    if spec.task not in ("mmlu", "mmlu-stem"):
        return {}
    path, split = str(spec.options.get("path", "mmlu")), str(spec.options.get("split", "test"))
    subjects = {f"mmlu-{split}-{number}": str(row["subject"]) for number, row in enumerate(split_rows(path, split))}
    return {name: group for name, subject in subjects.items() if (group := group_of(subject)) is not None}
