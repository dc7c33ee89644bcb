"""Figures of a run, from ``results.json`` and ``metrics.jsonl`` alone, as matplotlib drawings."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routelab.report.theme import ARMS, CONTROL, INK, MUTED, RULE, VARIABLES, arm_colours, metric_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 4.6
_SCREEN_FONTS = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass(frozen=True)
class Panel:
    """One drawing: the file stem, what it shows in words (the caption and the alternative text), the figure, and, where
    it shows more than the tables do, its data as CSV."""

    stem: str
    caption: str
    figure: Figure
    data: str = ""

    def svg(self) -> str:
        """Return the drawing as an SVG that uses the page's fonts and CSS variables instead of fixed colours."""
        text = self._render("svg").decode()
        text = text[text.index("<svg") :]
        for colour, (variable, _) in VARIABLES.items():
            text = text.replace(colour, f"var(--{variable})")
        return text.replace("'DejaVu Sans', sans-serif", _SCREEN_FONTS).replace("<svg ", '<svg aria-hidden="true" ', 1)

    def write(self, folder: Path) -> list[Path]:
        """Write ``stem.png``, ``stem.svg`` and any ``stem.csv`` into ``folder``, each through a temporary name."""
        folder.mkdir(parents=True, exist_ok=True)
        contents = {kind: self._render(kind) for kind in ("png", "svg")}
        if self.data:
            contents["csv"] = self.data.encode()
        written = []
        for kind, content in contents.items():
            path = folder / f"{self.stem}.{kind}"
            temporary = path.with_name(path.name + ".tmp")
            temporary.write_bytes(content)
            os.replace(temporary, path)
            written.append(path)
        return written

    def _render(self, kind: str) -> bytes:
        import matplotlib

        buffer = io.BytesIO()
        fixed: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": self.stem}
        with matplotlib.rc_context(fixed):
            if kind == "svg":
                self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
            else:
                self.figure.savefig(buffer, format="png", dpi=200, facecolor="white")
        return buffer.getvalue()


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
    return Panel("scores", caption, figure)


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
    return Panel("differences", caption, figure)


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
    return Panel("loss", "Training loss. Thin lines are seeds, thick lines their mean.", figure)


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
    return Panel("agreement", caption, figure)


def _headline_task(results: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(task for task in results["tasks"] if task["task"] == results["headline"]["task"])


def canvas(height: float) -> tuple[Figure, Axes]:
    """Return an empty drawing in the house style, one column wide."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[str, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.edgecolor": RULE,
        "axes.labelcolor": MUTED,
        "axes.labelsize": 8.5,
        "xtick.color": RULE,
        "ytick.color": RULE,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "text.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
    axes.grid(axis="x" if height < 2.6 else "y", color=RULE, lw=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def row_labels(axes: Axes, names: Sequence[str], colours: Mapping[str, str]) -> None:
    """Name the rows of a drawing with one row per arm, first row on top, in the arms' colours."""
    from matplotlib.ticker import MaxNLocator

    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set(color=colours[name], fontsize=9.5, fontweight="bold")


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
            arm,
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


__all__ = ["ARMS", "CONTROL", "Panel", "agreement", "canvas", "differences", "losses", "panels", "row_labels", "scores"]
