"""Which experts the tasks of a run use: heat maps before and after, the numbers, and the data behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from routelab.report.numbers import csv_text, spread
from routelab.report.panel import Panel, canvas
from routelab.report.studies_parts import some_of, tint
from routelab.report.tables import Table
from routelab.report.theme import INK, MUTED, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOST = "host, untouched"

Results = Mapping[str, Any]
Found = Sequence[Mapping[str, Any]]


def alignment_panel(results: Results) -> Panel:
    """One strip per model, the host first: a row per task, a column per expert of every layer, mean over seeds."""
    models = dict(_models(results))
    first = results["alignment"]["host"]
    tasks, layers = first["tasks"], [each["layer"] for each in first["layers"]]
    experts = len(first["layers"][0]["load"])
    shares = {name: _mean_share(found) for name, found in models.items()}
    largest = max(value for strip in shares.values() for row in strip for value in row)
    figure, axes = canvas(0.5 + (0.34 + 0.17 * len(tasks)) * len(models))
    axes.remove()
    parts = figure.add_gridspec(len(models), 1)
    for number, (name, strip) in enumerate(shares.items()):
        part = figure.add_subplot(parts[number])
        _strip(part, strip, largest, experts)
        part.set_title(name, loc="left", fontsize=9, color=INK, pad=3)
        part.set_yticks([i + 0.5 for i in range(len(tasks))], tasks, fontsize=7.5)
        for task, group in _targets(results, name).items():
            _outline(part, tasks.index(task), group, len(layers), experts)
        last = number == len(models) - 1
        named = some_of(len(layers))
        labels = [f"layer {layers[i]}" if i == 0 else str(layers[i]) for i in named]
        part.set_xticks([(i + 0.5) * experts for i in named], labels if last else [""] * len(named))
    caption = (
        f"Where each task's tokens go: the share of its choices that each of {experts} experts gets, layer by layer, "
        f"mean over seeds; full colour is {100 * largest:.0f}%. A frame marks the experts a method gave to the task."
    )
    return Panel("alignment", caption, figure, data=alignment_csv(results))


def alignment_table(results: Results) -> Table:
    """The measures of every model; an arm's as mean ± sd over seeds."""
    rows = []
    for name, found in _models(results):
        active = [fmean(each["active_parameters"]) / each["parameters"] for each in found]
        rows.append(
            [
                name,
                spread([each["nmi"] for each in found], 3),
                spread([each["purity"] for each in found], 3),
                spread([fmean(each["entropy"]) for each in found], 3),
                spread([100 * max(max(layer["load"]) for layer in each["layers"]) for each in found], 1, "%"),
                spread([each["dead"] for each in found], 1),
                spread([100 * value for value in active], 1, "%"),
                spread([fmean(each["gradient"].values()) for each in found], 4),
            ]
        )
    columns = [
        "arm",
        "NMI",
        "purity",
        "entropy",
        "largest load",
        "dead experts",
        "active parameters",
        "router gradient",
    ]
    note = (
        "Held-out texts of every task, all layers. NMI is the mutual information of task and expert over its largest "
        "possible value. Purity is the share of choices made by the task that uses the expert most. Entropy is that of "
        "a task's experts, 1 where it uses all alike. Active parameters serve 95% of a task's choices, mean over "
        "tasks. The router gradient is the norm of the language-model loss's own, mean over layers."
    )
    return Table("Task-expert alignment", columns, rows, note)


def alignment_csv(results: Results) -> str:
    """Every share as a line: model, seed, layer, task, expert, share."""
    study = results["alignment"]
    runs = [(HOST, "", study["host"])]
    runs += [(arm, seed, found) for arm, seeds in study["arms"].items() for seed, found in seeds.items()]
    rows = (
        [name, seed, each["layer"], task, expert, share]
        for name, seed, found in runs
        for each in found["layers"]
        for task, row in zip(found["tasks"], each["share"], strict=True)
        for expert, share in enumerate(row)
    )
    return csv_text(["arm", "seed", "layer", "task", "expert", "share"], rows)


def _models(results: Results) -> Iterator[tuple[str, Found]]:
    """Yield the name of every model and what was found in it, seed by seed; the host has one."""
    yield HOST, [results["alignment"]["host"]]
    for arm, seeds in results["alignment"]["arms"].items():
        yield arm, list(seeds.values())


def _mean_share(found: Found) -> list[list[float]]:
    """Return ``[tasks][layers · experts]``, mean over seeds."""
    rows = []
    for task in range(len(found[0]["tasks"])):
        seeds = [[value for layer in each["layers"] for value in layer["share"][task]] for each in found]
        rows.append([fmean(values) for values in zip(*seeds, strict=True)])
    return rows


def _targets(results: Results, arm: str) -> Mapping[str, Sequence[int]]:
    """Return the experts that an arm's method gave to the tasks that were looked at, if it gave any."""
    methods = results["arms"][arm]["methods"] if arm in results["arms"] else []
    given: Mapping[str, Sequence[int]] = next(
        (method["details"]["experts"] for method in methods if method["details"].get("experts")), {}
    )
    return {task: group for task, group in given.items() if task in results["alignment"]["host"]["tasks"]}


def _strip(axes: Axes, strip: list[list[float]], largest: float, experts: int) -> None:
    tint(axes, strip, largest)
    for layer in range(1, len(strip[0]) // experts):
        axes.axvline(layer * experts, color=RULE, lw=0.8)
    axes.tick_params(labelcolor=MUTED, labelsize=8)


def _outline(axes: Axes, row: int, group: Sequence[int], layers: int, experts: int) -> None:
    from matplotlib.patches import Rectangle

    for expert in group:
        if expert - 1 in group:  # inside the frame that begins at an earlier neighbour
            continue
        width = next(n for n in range(1, experts + 1) if expert + n not in group)
        for layer in range(layers):
            axes.add_patch(Rectangle((layer * experts + expert, row), width, 1, fill=False, edgecolor=INK, lw=0.7))
