"""The pages of studies of answers: their lengths by outcome, and sweeps of depth and window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from routelab.report.numbers import csv_text
from routelab.report.panel import Panel, canvas, grid, legend, row_labels
from routelab.report.studies_parts import Found, Shown, percent, signed, title, whole_numbers
from routelab.report.tables import Table
from routelab.report.theme import ARMS, CONTROL, MUTED, metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from routelab.report.theme import Metric

_LINES = {"from": "from this layer on", "only": "this layer only"}


def lengths_shown(found: Found) -> Shown:
    """Table 4 of arXiv 2609.20974."""
    wrong = found["groups"]["both wrong"]["statistics"].get("mean tokens")
    claim = (
        f"Where both are wrong, {found['names']['model']} writes {_more(wrong)} tokens than "
        f"{found['names']['control']}{_between(wrong)}."
        if wrong and wrong["change"] is not None
        else f"{found['names']['model']} and {found['names']['control']} are never both wrong."
    )
    note = f"Changes are relative to {found['names']['control']}, with 95% intervals over questions."
    tables = [_length_table(name, group, found) for name, group in found["groups"].items() if group["n"]]
    return Shown(claim, note, [_length_changes(found)], tables)


def _more(each: Found) -> str:
    return f"{abs(100 * each['change']):.1f}% {'fewer' if each['change'] < 0 else 'more'}"


def _between(each: Found) -> str:
    if each["low"] is None:
        return ""
    return f" (change {signed(100 * each['low'], 1)}% to {signed(100 * each['high'], 1)}%)"


def _length_table(name: str, group: Found, found: Found) -> Table:
    rows = []
    for statistic, each in group["statistics"].items():
        show = (lambda value: percent(value, 2)) if statistic == "ramble rate" else (lambda value: f"{value:,.1f}")
        change = "–" if each["change"] is None else f"{signed(100 * each['change'], 1)}%"
        known = each["low"] is not None
        between = f"{signed(100 * each['low'], 1)}% to {signed(100 * each['high'], 1)}%" if known else "–"
        rows.append([statistic, show(each["control"]), show(each["model"]), change, between])
    columns = ["statistic", found["names"]["control"], found["names"]["model"], "change", "95% interval"]
    note = f"Ramble rate: answers of over {found['ramble']:,} characters." if name == "all" else ""
    return Table(f"{name}: {group['n']:,} answers to {group['questions']:,} questions", columns, rows, note)


def _length_changes(found: Found) -> Panel:
    shown = ("mean tokens", "median tokens", "P99 characters")
    groups = [name for name, group in found["groups"].items() if group["n"]]
    figure, axes = canvas(0.95 + 0.5 * len(groups))
    axes.axvline(0, color=MUTED, lw=1)
    rows: list[list[object]] = []
    for y, name in enumerate(groups):
        for place, (statistic, colour) in enumerate(zip(shown, ARMS, strict=False)):
            each = found["groups"][name]["statistics"][statistic]
            if each["change"] is None:
                continue
            at = y + 0.2 * (place - 1)
            if each["low"] is not None:
                axes.plot([100 * each["low"], 100 * each["high"]], [at, at], color=colour, lw=3, alpha=0.4)
            label = statistic if y == 0 else None
            axes.scatter([100 * each["change"]], [at], s=22, color=colour, zorder=3, linewidths=0, label=label)
    for name in groups:
        for statistic, each in found["groups"][name]["statistics"].items():
            rows.append([name, statistic, *(each[key] for key in ("control", "model", "change", "low", "high"))])
    row_labels(axes, groups, dict.fromkeys(groups, MUTED))
    legend(axes)
    axes.set_xlabel(f"length against {found['names']['control']} (%)")
    data = csv_text(["group", "statistic", "control", "model", "change", "low", "high"], rows)
    return Panel("lengths", "Change of answer length by who was right, with 95% intervals.", figure, data)


def sweep_shown(found: Found) -> Shown:
    """Figure 4 and table 5, or table 3, of arXiv 2609.20974."""
    depth = found["sweep"] == "depth"
    panels = [_curve(found, task, depth=depth) for task in found["tasks"]]
    tables = [_point_table(found, task) for task in found["tasks"]]
    for task in found["tasks"]:
        if any("groups" in point["tasks"][task["task"]] for point in found["points"]):
            panels.append(_group_curves(found, task, depth=depth))
            tables.append(_group_table(found, task))
    tables += failed_cells(found)
    note = f"{len(found['points'])} of {found['planned'] - 1} cells are finished, each against {found['control_arm']}."
    return Shown(_sweep_claim(found), note, panels, tables)


def failed_cells(found: Found) -> list[Table]:
    """Return the table of a sweep's cells that failed, where there are any."""
    if not found["failed"]:
        return []
    rows = [[each["cell"], each["error"]] for each in found["failed"]]
    return [Table("cells that failed", ["cell", "error"], rows, "Run again with --resume.", frozenset({"error"}))]


def _sweep_claim(found: Found) -> str:
    if not found["points"]:
        return "No cell but the control is finished yet."
    parts = []
    for task in found["tasks"]:
        metric, name = metric_of(task), task["task"]
        best = max(found["points"], key=lambda point: _gain(point, task))
        difference = best["tasks"][name]["difference"]
        said = f"{metric.difference(difference['mean'])} ({metric.interval(difference['low'], difference['high'])})"
        parts.append(f"on {name} with {_point_name(best)}: {said}")
    return f"{found['arm']} against {found['control_arm']} does best {'; '.join(parts)}."


def _gain(point: Found, task: Found) -> float:
    mean = float(point["tasks"][task["task"]]["difference"]["mean"])
    return -mean if task["metric"] == "loss" else mean


def _point_name(point: Found) -> str:
    at = point["point"]
    if "layer" in at:
        return f"layers from {at['layer']} on" if at["form"] == "from" else f"layer {at['layer']} alone"
    return f"M = {at['window']}, {' and '.join(at['views'])}"


def _series(found: Found, *, depth: bool) -> dict[str, list[tuple[int, Found]]]:
    """The lines of a sweep's figures: by form of depth or choice of views, ``(x, point)`` in order."""
    lines: dict[str, list[tuple[int, Found]]] = {}
    for point in found["points"]:
        at = point["point"]
        name, x = (_LINES[at["form"]], at["layer"]) if depth else (" and ".join(at["views"]), at["window"])
        lines.setdefault(name, []).append((x, point))
    return {name: sorted(points, key=lambda pair: pair[0]) for name, points in lines.items()}


def _curve(found: Found, task: Found, *, depth: bool) -> Panel:
    metric, name = metric_of(task), task["task"]
    figure, axes = canvas(2.8)
    for (label, points), colour in zip(_series(found, depth=depth).items(), ARMS, strict=False):
        x = [at for at, _ in points]
        own = [point["tasks"][name] for _, point in points]
        axes.plot(x, [metric.scale * each["mean"] for each in own], "o-", color=colour, lw=1.8, ms=4, label=label)
        for at, each in zip(x, own, strict=True):
            dots = [metric.scale * value for value in each["seeds"]]
            axes.scatter([at] * len(dots), dots, s=9, color=colour, alpha=0.5, linewidths=0)
    control = found["control"][name]
    level = metric.scale * control["mean"]
    axes.axhline(level, color=CONTROL, lw=1.6, label=found["control_arm"])
    if control["sd"] is not None:
        half = metric.scale * control["sd"]
        axes.axhspan(level - half, level + half, color=CONTROL, alpha=0.18, lw=0)
    axes.axhline(metric.scale * found["host"][name], color=MUTED, lw=1, ls=(0, (4, 3)), label="host, untouched")
    _bottom(axes, found, depth=depth)
    axes.set_ylabel(metric.axis, color=MUTED)
    legend(axes)
    data = csv_text(
        ["cell", "task", "mean", "sd", "difference", "low", "high"],
        (
            [p["name"], name, t["mean"], t["sd"], *(t["difference"][key] for key in ("mean", "low", "high"))]
            for p in found["points"]
            for t in [p["tasks"][name]]
        ),
    )
    caption = f"{metric.label.capitalize()} on {name}. A dot is a seed; the band is ± one sd of {found['control_arm']}."
    return Panel(f"{found['sweep']}-{name}", caption, figure, data)


def _bottom(axes: Axes, found: Found, *, depth: bool) -> None:
    if depth:
        whole_numbers(axes)
        axes.set_xlabel("layer")
        return
    windows = sorted({point["point"]["window"] for point in found["points"]})
    axes.set_xscale("log", base=2)
    axes.set_xticks(windows, [str(window) for window in windows])
    axes.minorticks_off()
    axes.set_xlabel("window M")


def _group_curves(found: Found, task: Found, *, depth: bool) -> Panel:
    name = task["task"]
    groups = _groups(found, name)
    figure, small = grid(len(groups), 3, 1.35)
    for axes, group in zip(small, groups, strict=True):
        axes.axhline(0, color=MUTED, lw=0.8)
        for points, colour in zip(_series(found, depth=depth).values(), ARMS, strict=False):
            known = [
                (x, p["tasks"][name]["groups"][group]["difference"])
                for x, p in points
                if group in p["tasks"][name]["groups"]
            ]
            axes.plot(
                [x for x, _ in known], [100 * each["mean"] for _, each in known], "o-", color=colour, lw=1.4, ms=2.5
            )
            for x, each in known:
                axes.plot([x, x], [100 * each["low"], 100 * each["high"]], color=colour, lw=2, alpha=0.3)
        title(axes, group)
    small[0].set_ylabel("points", color=MUTED, fontsize=8.5)
    rows = (
        [p["name"], group, each["n"], *(each["difference"][key] for key in ("mean", "low", "high"))]
        for p in found["points"]
        for group, each in p["tasks"][name].get("groups", {}).items()
    )
    caption = f"Accuracy minus that of {found['control_arm']} by subject group of {name}, 95% intervals."
    data = csv_text(["cell", "group", "questions", "difference", "low", "high"], rows)
    return Panel(f"{found['sweep']}-{name}-groups", caption, figure, data)


def _groups(found: Found, task: str) -> list[str]:
    return list(dict.fromkeys(group for point in found["points"] for group in point["tasks"][task].get("groups", {})))


def _point_table(found: Found, task: Found) -> Table:
    metric, name = metric_of(task), task["task"]
    control = found["control"][name]
    rows = [["host, untouched", metric.show(found["host"][name]), "–", "–"]]
    rows.append([found["control_arm"], metric.show(control["mean"]) + metric.spread(control["sd"]), "–", "–"])
    for point in found["points"]:
        rows.append([_point_name(point), *_cells(point["tasks"][name], metric)])
    seeds = len(found["seeds"])
    columns = ["cell", f"{metric.label} ± sd", f"minus {found['control_arm']}", "95% interval"]
    note = f"{task['examples']} examples, {seeds} seed{'s' if seeds != 1 else ''}."
    return Table(name, columns, rows, note)


def _cells(each: Found, metric: Metric) -> list[str]:
    difference = each["difference"]
    return [
        metric.show(each["mean"]) + metric.spread(each["sd"]),
        metric.difference(difference["mean"]),
        metric.interval(difference["low"], difference["high"]),
    ]


def _group_table(found: Found, task: Found) -> Table:
    name = task["task"]
    groups = _groups(found, name)
    rows = []
    for group in groups:
        cells = []
        for point in found["points"]:
            each: dict[str, Any] | None = point["tasks"][name].get("groups", {}).get(group)
            cells.append("–" if each is None else signed(100 * each["difference"]["mean"], 1))
        rows.append([group, *cells])
    columns: Sequence[str] = ["subject group", *(point["name"] for point in found["points"])]
    return Table(f"{name} by subject group", columns, rows, f"Points of accuracy minus {found['control_arm']}.")
