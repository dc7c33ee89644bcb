"""The page of a Table 1 run: accuracy by tasks, experts and loss, and which experts the tasks visit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from routelab.report.numbers import csv_text, spread
from routelab.report.page import Page, facts, started
from routelab.report.panel import Panel, canvas, grid, legend
from routelab.report.studies_parts import ticks_between, tint, title
from routelab.report.tables import Table
from routelab.report.theme import ARMS, CONTROL, MUTED

Cell = Mapping[str, Any]
LOSSES = {"ce": "CE", "task_router": "CE + task router", "load_balance": "CE + load balance"}
COLOURS = {"ce": CONTROL, "task_router": ARMS[0], "load_balance": ARMS[1]}


def table1_page(results: Mapping[str, Any], manifest: Mapping[str, Any]) -> Page:
    """Return the page of the results and manifest of a Table 1 run."""
    cells = results["cells"]
    seeds = len({cell["seed"] for cell in cells})
    return Page(
        title=results["title"] or results["name"],
        eyebrow=[
            f"{len(cells)} of {results['planned']} cells",
            f"{seeds} seed{'s' if seeds != 1 else ''}",
            *started(manifest),
        ],
        claim=claim(cells),
        note=results["note"],
        draw=lambda: panels(cells),
        tables=[accuracy_table(cells), alignment_table(cells), *failures(results["failed"])],
        commands=results["commands"],
        facts=[*facts(manifest), *((f"setting {name}", str(value)) for name, value in results["settings"].items())],
    )


def claim(cells: Sequence[Cell]) -> str:
    """Say what the task-router loss, or else load balancing, does to alignment and to accuracy."""
    if not cells:
        return "No cell has finished yet."
    for loss, name in (("task_router", "The task-router loss"), ("load_balance", "Load balancing")):
        pairs = _paired(cells, loss)
        if pairs:
            gain = f"{100 * mean(ours['accuracy'] - plain['accuracy'] for plain, ours in pairs):+.1f}".replace("-", "−")
            before, after = (mean(cell["nmi"] for cell in side) for side in zip(*pairs, strict=True))
            count = f"{len(pairs)} paired cell{'s' if len(pairs) != 1 else ''}"
            return (
                f"{name} moves the mutual information of task and expert from {before:.2f} to {after:.2f}, "
                f"and accuracy by {gain} points ({count})."
            )
    return f"{len(cells)} cell{'s' if len(cells) != 1 else ''} with one loss."


def accuracy_table(cells: Sequence[Cell]) -> Table:
    """One row per number of tasks and experts, one column per loss: mean ± sd over seeds, in percent."""
    losses = [loss for loss in LOSSES if any(cell["loss"] == loss for cell in cells)]
    rows = []
    for tasks, experts in sorted({(cell["tasks"], cell["experts"]) for cell in cells}):
        row = [str(tasks), str(experts)]
        for loss in losses:
            values = _values(cells, "accuracy", tasks=tasks, experts=experts, loss=loss)
            row.append(spread([100 * value for value in values], 1))
        rows.append(row)
    note = "Exact match of completions, mean ± standard deviation over seeds. With one expert the three losses are one."
    return Table("accuracy (%)", ["tasks", "experts", *(LOSSES[loss] for loss in losses)], rows, note)


def alignment_table(cells: Sequence[Cell]) -> Table:
    """Normalised mutual information of task and expert, dead experts, and seconds, by loss."""
    rows = []
    for loss in LOSSES:
        own = [cell for cell in cells if cell["loss"] == loss and cell["experts"] > 1]
        if own:
            rows.append(
                [
                    LOSSES[loss],
                    spread([cell["nmi"] for cell in own], 3),
                    spread([cell["purity"] for cell in own], 3),
                    f"{mean(cell['dead_experts'] for cell in own):.2f}",
                    f"{mean(cell['seconds'] for cell in own):.0f}",
                ]
            )
    columns = ["loss", "NMI(task, expert)", "purity", "dead experts", "seconds a cell"]
    return Table("routing", columns, rows, "Over all cells with more than one expert, test tokens.")


def failures(failed: Sequence[Mapping[str, str]]) -> list[Table]:
    """Return the table of cells that failed, if any did."""
    if not failed:
        return []
    rows = [[each["cell"], each["error"]] for each in failed]
    return [Table("failed cells", ["cell", "error"], rows, text=frozenset({"cell", "error"}))]


def panels(cells: Sequence[Cell]) -> list[Panel]:
    """Return the drawings that the cells allow: accuracy by experts, and one heat map per loss."""
    if not cells:
        return []
    return [accuracy_panel(cells), *heatmap_panels(cells)]


def accuracy_panel(cells: Sequence[Cell]) -> Panel:
    """Accuracy against experts, one small plot per number of tasks, one line per loss, a dot per seed."""
    tasks = sorted({cell["tasks"] for cell in cells})
    most = sorted({cell["experts"] for cell in cells})
    figure, small = grid(len(tasks), min(2, len(tasks)), 1.9)
    for axes in small[1:]:  # before anything is drawn: the limits are then those of all
        axes.sharex(small[0])
        axes.sharey(small[0])
    for axes, count in zip(small, tasks, strict=True):
        for loss, label in LOSSES.items():
            own = [cell for cell in cells if cell["tasks"] == count and cell["loss"] == loss]
            if own:
                experts = sorted({cell["experts"] for cell in own})
                means = [100 * mean(_values(own, "accuracy", experts=each)) for each in experts]
                axes.plot(experts, means, color=COLOURS[loss], lw=1.6, label=label)
                dots = [100 * cell["accuracy"] for cell in own]
                axes.scatter([cell["experts"] for cell in own], dots, s=8, color=COLOURS[loss], linewidths=0)
        title(axes, f"{count} tasks")
    small[0].set_xticks(most, [str(each) for each in most])
    figure.supxlabel("experts", fontsize=9, color=MUTED)
    figure.supylabel("accuracy (%)", fontsize=9, color=MUTED)
    legend(max(small, key=lambda axes: len(axes.get_lines())))
    caption = "Exact-match accuracy of completions by number of experts. A dot is a seed, the line their mean."
    columns = ["tasks", "experts", "loss", "seed", "accuracy", "nmi", "purity", "dead_experts", "seconds"]
    return Panel("accuracy", caption, figure, csv_text(columns, ([cell[name] for name in columns] for cell in cells)))


def heatmap_panels(cells: Sequence[Cell]) -> list[Panel]:
    """Share of a task's test tokens at each expert, for the three losses of one shape: the paper's figure 2."""
    shape = _shown_shape(cells)
    shown = []
    for loss, label in LOSSES.items():
        own = [c for c in cells if (c["tasks"], c["experts"]) == shape and c["loss"] == loss]
        if shape and own:
            cell = min(own, key=lambda each: each["seed"])
            shown.append(_heatmap(cell, loss, label))
    return shown


def _heatmap(cell: Cell, loss: str, label: str) -> Panel:
    shares = [[count / max(1, sum(row)) for count in row] for row in cell["alignment"]]
    figure, axes = canvas(0.9 + 0.16 * len(shares))
    tint(axes, shares, 1.0)
    ticks_between(axes, range(len(shares)), range(len(shares[0])))
    axes.set_xlabel("expert")
    axes.set_ylabel("task", color=MUTED)
    caption = (
        f"{label}: share of each task's test tokens that visit each expert; {cell['tasks']} tasks, "
        f"{cell['experts']} experts, seed {cell['seed']}, NMI {cell['nmi']:.2f}. Full colour is 100%."
    )
    rows = ([task, expert, share] for task, row in enumerate(shares) for expert, share in enumerate(row))
    return Panel(f"routing-{loss.replace('_', '-')}", caption, figure, csv_text(["task", "expert", "share"], rows))


def _shown_shape(cells: Iterable[Cell]) -> tuple[int, int] | None:
    """The paper's 20 tasks and 7 experts where they are there, else the largest shape with most losses."""
    losses: dict[tuple[int, int], set[str]] = {}
    for cell in cells:
        if cell["experts"] > 1:
            losses.setdefault((cell["tasks"], cell["experts"]), set()).add(cell["loss"])
    if len(losses.get((20, 7), ())) == len(LOSSES):
        return 20, 7
    return max(losses, key=lambda shape: (len(losses[shape]), shape), default=None)


def _paired(cells: Sequence[Cell], loss: str) -> list[tuple[Cell, Cell]]:
    plain = {(c["tasks"], c["experts"], c["seed"]): c for c in cells if c["loss"] == "ce" and c["experts"] > 1}
    keys = [((c["tasks"], c["experts"], c["seed"]), c) for c in cells if c["loss"] == loss]
    return [(plain[key], cell) for key, cell in keys if key in plain]


def _values(cells: Iterable[Cell], what: str, **where: Any) -> list[float]:
    return [cell[what] for cell in cells if all(cell[key] == value for key, value in where.items())]
