"""The page of a sweep of seeds: every arm with each seed, and its difference from the control over all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from routelab.report.alignment import alignment_table
from routelab.report.figures import differences, scores
from routelab.report.studies_answers import failed_cells
from routelab.report.studies_parts import Found, Shown
from routelab.report.tables import tables, verdict
from routelab.report.theme import metric_of

if TYPE_CHECKING:
    from routelab.report.panel import Panel


def seeds_shown(found: Found) -> Shown:
    """The drawings and tables of a training run, for every task, and the seeds that are missing."""
    done = len(found["seeds"])
    names = ", ".join(str(seed) for seed in found["seeds"])
    note = f"{done} of {found['planned']} seeds are finished: {names}."
    aligned = found["alignment"] is not None
    return Shown(
        claim=_claim(found),
        note=note,
        panels=[panel for task in found["tasks"] for panel in _panels(found, task)],
        tables=[*tables(found), *([alignment_table(found)] if aligned else []), *failed_cells(found)],
    )


def _claim(found: Found) -> str:
    seeds = f"over {len(found['seeds'])} seed{'s' if len(found['seeds']) != 1 else ''}"
    by_name = {task["task"]: task for task in found["tasks"]}
    if not found["comparisons"]:
        own = found["arms"][found["control"]]["tasks"]
        said = [f"{metric_of(task).say(own[name]['mean'])} on {name}" for name, task in by_name.items()]
        return f"{found['control']} reaches {', '.join(said)} {seeds}."
    parts = []
    for row in found["comparisons"]:
        metric = metric_of(by_name[row["task"]])
        size = f"{metric.difference(row['difference'])} ({metric.interval(row['low'], row['high'])})"
        parts.append(f"{row['arm']} on {row['task']} {size}, {verdict(row)}")
    return f"Against {found['control']} {seeds}: {'; '.join(parts)}."


def _panels(found: Found, task: Found) -> list[Panel]:
    drawn = [scores(found, task)]
    if any(row["task"] == task["task"] for row in found["comparisons"]):
        drawn.append(differences(found, task))
    return [replace(panel, stem=f"seeds-{task['task']}-{panel.stem}") for panel in drawn]
