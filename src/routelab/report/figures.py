"""Figures of a run, from ``results.json`` and ``metrics.jsonl`` alone, as matplotlib drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from routelab.report.numbers import clipped, csv_text
from routelab.report.panel import Panel, canvas, row_labels
from routelab.report.theme import INK, MUTED, arm_colours, metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def panels(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return the drawings that the results allow: scores, differences, training loss, expert agreement."""
    task = _headline_task(results)
    drawn = [scores(results, task)]
    if any(row["task"] == task["task"] for row in results["comparisons"]):
        drawn.append(differences(results, task))
    if any("loss" in row for row in metrics):
        drawn.append(losses(results, metrics))
    if any(arm["agreement"]["layers"] for arm in results["arms"].values() if arm.get("agreement")):
        drawn.append(agreement(results))
    return drawn


def scores(results: Mapping[str, Any], task: Mapping[str, Any]) -> Panel:
    """One line per arm: every seed a dot, the mean a bar, one standard deviation a band; the host as a dashed line."""
    metric = metric_of(task)
    arms = list(results["arms"])
    colours = arm_colours(arms, results["control"])
    figure, axes = canvas(0.95 + 0.52 * len(arms))
    for y, arm in enumerate(arms):
        summary = results["arms"][arm]["tasks"][task["task"]]
        values = [seed["value"] * metric.scale for seed in summary["seeds"].values()]
        mean, sd = summary["mean"] * metric.scale, summary["sd"]
        if sd is not None:
            half = sd * metric.scale
            axes.plot([mean - half, mean + half], [y, y], color=colours[arm], lw=7, alpha=0.22, solid_capstyle="butt")
        axes.scatter(values, [y] * len(values), s=26, color=colours[arm], zorder=3, linewidths=0)
        axes.plot([mean, mean], [y - 0.24, y + 0.24], color=colours[arm], lw=2.2, zorder=4)
        text = metric.show(summary["mean"]) + metric.spread(sd)
        axes.annotate(
            text,
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=9,
        )
    base = results["base"].get(task["task"])
    if base is not None:
        axes.axvline(base["value"] * metric.scale, color=MUTED, lw=1, ls=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"host {metric.show(base['value'])}",
            (base["value"] * metric.scale, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            color=MUTED,
            fontsize=8.5,
        )
    row_labels(axes, arms, colours)
    axes.set_xlabel(f"{metric.axis}, {task['examples']} examples")
    caption = f"{metric.label.capitalize()} on {task['task']}. A dot is a seed, the bar their mean, the band ± one sd."
    rows = (
        [arm, seed, each["value"]]
        for arm in arms
        for seed, each in results["arms"][arm]["tasks"][task["task"]]["seeds"].items()
    )
    return Panel("scores", caption, figure, csv_text(["arm", "seed", metric.label], rows))


def differences(results: Mapping[str, Any], task: Mapping[str, Any]) -> Panel:
    """One line per arm: its difference from the control on the same examples, with the paired 95% interval."""
    metric = metric_of(task)
    rows = {row["arm"]: row for row in results["comparisons"] if row["task"] == task["task"]}
    arms = list(results["arms"])
    colours = arm_colours(arms, results["control"])
    figure, axes = canvas(0.95 + 0.52 * len(arms))
    axes.axvline(0, color=MUTED, lw=1)
    for y, arm in enumerate(arms):
        if arm not in rows:
            axes.scatter([0], [y], s=44, facecolor="none", edgecolor=colours[arm], linewidths=1.6, zorder=3)
            continue
        row, colour = rows[arm], colours[arm]
        for low, high, width in (("low", "high", 1.2), ("low_examples", "high_examples", 4.5)):
            ends = [row[low] * metric.scale, row[high] * metric.scale]
            axes.plot(ends, [y, y], color=colour, lw=width, solid_capstyle="butt")
        axes.scatter([row["difference"] * metric.scale], [y], s=52, color=colour, zorder=3, linewidths=0)
        per_seed = [value * metric.scale for value in row["seeds"].values()]
        axes.scatter(per_seed, [y + 0.27] * len(per_seed), s=9, color=colour, alpha=0.65, linewidths=0)
        axes.annotate(
            metric.signed(row["difference"]),
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=9,
        )
    row_labels(axes, arms, colours)
    axes.set_xlabel(f"{metric.label} minus {results['control']}, {metric.difference_unit}")
    covers = next(iter(rows.values()))["covers"]
    thin = "" if covers == "examples" else f"; the thin line is that over {covers}"
    caption = (
        f"Difference from {results['control']} on the same examples. The thick line is the paired 95% interval over "
        f"examples{thin}. Small dots are single seeds."
    )
    columns = ["difference", "low", "high", "low_examples", "high_examples"]
    data = csv_text(["arm", *columns], ([arm, *(row[name] for name in columns)] for arm, row in rows.items()))
    return Panel("differences", caption, figure, data)


def losses(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> Panel:
    """Training loss by step: every seed a thin line, the mean over seeds a thick one, named at its end."""
    arms = list(results["arms"])
    colours = arm_colours(arms, results["control"])
    figure, axes = canvas(2.6)
    ends: list[tuple[float, float, str]] = []
    for arm in arms:
        curves: dict[Any, dict[int, float]] = {}
        for row in metrics:
            if row.get("arm") == arm and "loss" in row:
                curves.setdefault(row["seed"], {})[int(row["step"])] = float(row["loss"])
        if not curves:
            continue
        for curve in curves.values():
            axes.plot(sorted(curve), [curve[step] for step in sorted(curve)], color=colours[arm], lw=0.7, alpha=0.4)
        shared = sorted(set.intersection(*(set(curve) for curve in curves.values())))
        if shared:
            mean = [sum(curve[step] for curve in curves.values()) / len(curves) for step in shared]
            axes.plot(shared, mean, color=colours[arm], lw=2)
            ends.append((shared[-1], mean[-1], arm))
    _end_labels(axes, ends, colours)
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("training loss (nats per token)", color=MUTED)
    rows = ([row["arm"], row["seed"], row["step"], row["loss"]] for row in metrics if "loss" in row)
    data = csv_text(["arm", "seed", "step", "loss"], rows)
    return Panel("loss", "Training loss. Thin lines are seeds, thick lines their mean.", figure, data)


def agreement(results: Mapping[str, Any]) -> Panel:
    """Share of chosen experts that an arm and the control have in common, per layer, averaged over seeds."""
    from matplotlib.ticker import MaxNLocator

    arms = [arm for arm, found in results["arms"].items() if found.get("agreement") and found["agreement"]["layers"]]
    colours = arm_colours(list(results["arms"]), results["control"])
    figure, axes = canvas(2.6)
    ends = []
    for arm in arms:
        layers = results["arms"][arm]["agreement"]["layers"]
        x, y = [int(layer) for layer in layers], [100 * value for value in layers.values()]
        axes.plot(x, y, color=colours[arm], lw=2, marker="o", ms=3.5)
        ends.append((x[-1], y[-1], arm))
    _end_labels(axes, ends, colours)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("layer")
    axes.set_ylabel("same experts chosen (%)", color=MUTED)
    caption = f"Chosen experts in common with {results['control']}, same seed, per layer, on held-out text."
    shares = (
        [arm, layer, share] for arm in arms for layer, share in results["arms"][arm]["agreement"]["layers"].items()
    )
    return Panel("agreement", caption, figure, csv_text(["arm", "layer", "share"], shares))


def _headline_task(results: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(task for task in results["tasks"] if task["task"] == results["headline"]["task"])


def _end_labels(axes: Axes, ends: Sequence[tuple[float, float, str]], colours: Mapping[str, str]) -> None:
    """Name each line at its right end, moved apart where the ends are closer than a line of text."""
    if not ends:
        return
    low, high = axes.get_ylim()
    gap = (high - low) * 0.075
    placed = float("-inf")
    for x, y, arm in sorted(ends, key=lambda end: end[1]):
        placed = max(y, placed + gap)
        axes.annotate(
            clipped(arm, 24),
            (x, y),
            xytext=(1.0, placed),
            textcoords=("axes fraction", "data"),
            va="center",
            color=colours[arm],
            fontsize=9,
            fontweight="bold",
            annotation_clip=False,
        )
    axes.set_ylim(low, max(high, placed + gap / 2))
