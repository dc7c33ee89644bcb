"""Drawings and tables of several runs on one task of one host, side by side."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from statistics import stdev
from typing import TYPE_CHECKING

from routelab.report.measures import Measure, Task
from routelab.report.numbers import clipped, csv_text
from routelab.report.panel import Panel, canvas, row_labels
from routelab.report.tables import Table
from routelab.report.theme import CONTROL, MUTED, Metric, arm_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Rows of a drawing above which it shows only what each run is about.
_ROWS = 40
#: A row's height in inches: of few rows, and of many.
_HEIGHTS = (0.3, 0.15)
_FEW = 24
#: Characters of a file's name that are readable, of at most 255.
_STEM = 80

Measured = Mapping[str, Sequence[Measure]]


def task_panels(task: Task, where: str, measured: Measured) -> list[Panel]:
    """Return the drawings of a task: the scores of all runs, and what differs from the controls of their own runs."""
    rows = [(run, each) for run, measures in measured.items() for each in measures]
    if len(rows) > _ROWS:
        rows = [(run, each) for run, each in rows if each.main]
    drawn = [_scores(task, where, rows)] if rows else []
    compared = [(run, each) for run, each in rows if each.difference is not None]
    return [*drawn, _differences(task, where, compared)] if compared else drawn


def task_table(task: Task, where: str, measured: Measured) -> Table:
    """Every arm of every run on one task, and its difference from the control of its own run."""
    metric = task.metric
    rows = []
    for run, measures in measured.items():
        for each in measures:
            spread = stdev(each.seeds) if len(each.seeds) > 1 else None
            score = metric.show(each.mean) + metric.spread(spread)
            cells = ["–", "–"]
            if each.difference is not None:
                mean, low, high = each.difference
                cells = [metric.signed(mean), metric.interval(low, high)]
            arm = f"{each.arm} (control)" if each.control else each.arm
            rows.append([run, arm, str(len(each.seeds)), score, *cells])
    columns = ["run", "arm", "seeds", f"{metric.label} ± sd", f"difference, {metric.difference_unit}", "95% interval"]
    note = "Differences are from the control of the same run, on the same examples; runs are not paired."
    return Table(where, columns, rows, note, frozenset({"run", "arm"}))


def stem(task: Task) -> str:
    """Return the name of a task's files, with a digest: cut short, or of letters alone, two tasks may look alike."""
    whole = (task.host.name, task.host.digest, task.name, task.metric.label, task.examples or "", task.data or "")
    words = " ".join(map(str, whole[:-1]))
    plain = re.sub(r"[^a-z0-9]+", "-", words.lower())[:_STEM].strip("-")
    return f"{plain}-{hashlib.sha256(repr(whole).encode()).hexdigest()[:6]}"


def _scores(task: Task, where: str, rows: Sequence[tuple[str, Measure]]) -> Panel:
    metric, colours = task.metric, _colours(rows)
    figure, axes = canvas(_height(rows))
    size = 1.0 if len(rows) <= _FEW else 0.55
    # A few collections, not three lines a row: a page may have hundreds of rows.
    spans = [(y, *each.interval, colours[each.arm]) for y, (_, each) in enumerate(rows) if each.interval is not None]
    if spans:
        at, low, high, colour = zip(*spans, strict=True)
        axes.hlines(at, _scaled(low, metric), _scaled(high, metric), colors=colour, lw=1.2 * size)
    dots = [(value * metric.scale, y, colours[each.arm]) for y, (_, each) in enumerate(rows) for value in each.seeds]
    x, heights, colour = zip(*dots, strict=True)
    axes.scatter(x, heights, s=22 * size, c=colour, alpha=0.6, zorder=3, linewidths=0)
    means, own = [each.mean * metric.scale for _, each in rows], [colours[each.arm] for _, each in rows]
    tops, feet = ([y + side * 0.28 for y in range(len(rows))] for side in (-1, 1))
    axes.vlines(means, tops, feet, colors=own, lw=2.2 * size, zorder=4)
    _name(axes, rows, colours)
    axes.set_xlabel(metric.axis if metric.unit or metric.label == "loss" else metric.label)
    line = " the line its 95% interval over examples (Wilson)," if any(each.interval for _, each in rows) else ""
    caption = f"{where}: every run and arm. A dot is a seed, the bar their mean,{line} on the same host and task."
    data = csv_text(
        ["run", "arm", "seed", metric.label],
        ([run, each.arm, i, value] for run, each in rows for i, value in enumerate(each.seeds)),
    )
    return Panel(f"{stem(task)}-scores", caption, figure, data)


def _differences(task: Task, where: str, rows: Sequence[tuple[str, Measure]]) -> Panel:
    metric, colours = task.metric, _colours(rows)
    figure, axes = canvas(_height(rows))
    axes.axvline(0, color=MUTED, lw=1)
    size = 1.0 if len(rows) <= _FEW else 0.55
    ends = [(run, each.arm, *each.difference) for run, each in rows if each.difference is not None]
    _, arms, means, lows, highs = zip(*ends, strict=True)
    colour = [colours[arm] for arm in arms]
    axes.hlines(range(len(ends)), _scaled(lows, metric), _scaled(highs, metric), colors=colour, lw=2.2 * size)
    axes.scatter(_scaled(means, metric), range(len(ends)), s=36 * size, c=colour, zorder=3, linewidths=0)
    _name(axes, rows, colours)
    axes.set_xlabel(f"{metric.label} minus the run's own control, {metric.difference_unit}")
    caption = f"{where}: difference from the control of the same run, on the same examples, with its 95% interval."
    return Panel(f"{stem(task)}-differences", caption, figure, csv_text(["run", "arm", "mean", "low", "high"], ends))


def _colours(rows: Sequence[tuple[str, Measure]]) -> dict[str, str]:
    """One colour an arm; arms that are controls wherever they occur are grey."""
    arms = list(dict.fromkeys(each.arm for _, each in rows))
    controls = [arm for arm in arms if all(each.control for _, each in rows if each.arm == arm)]
    colours = arm_colours([arm for arm in arms if arm not in controls], "")
    return {**colours, **dict.fromkeys(controls, CONTROL)}


def _scaled(values: Sequence[float], metric: Metric) -> list[float]:
    return [value * metric.scale for value in values]


def _height(rows: Sequence[tuple[str, Measure]]) -> float:
    return 0.95 + len(rows) * _HEIGHTS[len(rows) > _FEW]


def _name(axes: Axes, rows: Sequence[tuple[str, Measure]], colours: Mapping[str, str]) -> None:
    names = [f"{clipped(run, 20)} · {clipped(each.arm, 16)}" for run, each in rows]
    row_labels(axes, names, {name: colours[each.arm] for name, (_, each) in zip(names, rows, strict=True)})
    small = len(rows) > _FEW
    for label in axes.get_yticklabels():
        label.set(fontsize=5.5 if small else 8, fontweight="normal")
