"""The tables and sentences of a report, as plain text; the page and the terminal show the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from routelab.report.theme import Metric, metric_of

Results = Mapping[str, Any]

VERDICTS = {
    "better": "better",
    "worse": "worse",
    "undecided": "no difference shown",
}


@dataclass(frozen=True)
class Table:
    """A table of text. The first column names the row; the columns in ``text`` hold words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text: frozenset[str] = frozenset({"arm", "task"})


def tables(results: Results) -> list[Table]:
    """Return every table of a report: one per task, then differences, training, expert agreement and seeds."""
    found = [score_table(results, task) for task in results["tasks"]]
    if results["comparisons"]:
        found.append(comparison_table(results))
    found.append(training_table(results))
    if any(arm.get("agreement") for arm in results["arms"].values()):
        found.append(agreement_table(results))
    if len(results["seeds"]) > 1:
        found.append(seed_table(results))
    return found


def score_table(results: Results, task: Mapping[str, Any]) -> Table:
    """Every arm on one task, and the host untouched."""
    metric, name = metric_of(task), task["task"]
    rows = []
    if name in results["base"]:
        rows.append(_score_row("host, untouched", metric, results["base"][name], results["base"][name]["value"], None))
    for arm, summary in results["arms"].items():
        scores = summary["tasks"][name]
        rows.append(_score_row(arm, metric, _averaged(scores["seeds"].values()), scores["mean"], scores["sd"]))
    columns = ["arm", f"{metric.label} ± sd", "tokens", "characters", "cut off", "seconds"]
    kept = [i for i in range(len(columns)) if i < 2 or any(row[i] != "–" for row in rows)]
    return Table(
        f"{name}, {task['examples']} held-out examples",
        [columns[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
    )


def comparison_table(results: Results) -> Table:
    """Every arm minus the control, on the same examples."""
    control, by_name = results["control"], {task["task"]: task for task in results["tasks"]}
    rows = []
    for row in results["comparisons"]:
        metric = metric_of(by_name[row["task"]])
        spread = "–" if row["sd"] is None else f"{row['sd'] * metric.scale:.{metric.digits}f}"
        rows.append(
            [
                row["arm"],
                row["task"],
                metric.difference(row["difference"]),
                metric.interval(row["low"], row["high"]),
                metric.interval(row["low_examples"], row["high_examples"]),
                spread,
                VERDICTS[row["verdict"]],
            ]
        )
    covers = results["comparisons"][0]["covers"]
    return Table(
        f"Difference from {control}",
        ["arm", "task", "difference", f"95% over {covers}", "95% over examples", "sd over seeds", "verdict"],
        rows,
        f"Paired bootstrap on the same examples. The interval over {covers} decides the verdict: "
        "other than “no difference shown” only where it excludes zero.",
    )


def training_table(results: Results) -> Table:
    """What each arm trained, how long, and the proof that nothing else moved."""
    rows = []
    for arm, summary in results["arms"].items():
        runs = list(summary["train"].values())
        first, last = (_mean([run[key] for run in runs]) for key in ("loss_first", "loss_last"))
        rows.append(
            [
                arm,
                f"{summary['trainable_parameters']:,}",
                f"{summary['new_parameters']:,}",
                f"{runs[0]['steps']:,}",
                f"{round(_mean([run['tokens'] for run in runs])):,}",
                f"{_mean([run['seconds'] for run in runs]):.1f}",
                f"{first:.3f} → {last:.3f}",
                "yes" if all(run["frozen_identical"] for run in runs) else "NO",
            ]
        )
    columns = ["arm", "trained parameters", "new", "steps", "tokens", "seconds", "training loss", "rest bit-identical"]
    same = "All arms saw the same batches in the same order, seed by seed (equal hashes)."
    note = same if results["same_batches"] else "The arms did NOT see the same batches."
    return Table("Training, mean over seeds", columns, rows, note)


def agreement_table(results: Results) -> Table:
    """Share of chosen experts in common with the control and with the host."""
    rows = [
        [arm, *(_percent(summary["agreement"].get(key)) for key in ("mean", "with_host"))]
        for arm, summary in results["arms"].items()
        if summary.get("agreement")
    ]
    columns = ["arm", f"with {results['control']}", "with the host"]
    return Table("Chosen experts in common", columns, rows, "Mean over tokens of held-out text, layers and seeds.")


def seed_table(results: Results) -> Table:
    """Every single seed's number."""
    columns = ["arm", "task", *(f"seed {seed}" for seed in results["seeds"])]
    rows = []
    for arm, summary in results["arms"].items():
        for task in results["tasks"]:
            values = summary["tasks"][task["task"]]["seeds"]
            rows.append([arm, task["task"], *(metric_of(task).show(values[str(s)]["value"]) for s in results["seeds"])])
    return Table("Seeds", columns, rows)


def claim(results: Results) -> str:
    """Say the run's main result in one sentence."""
    task = next(task for task in results["tasks"] if task["task"] == results["headline"]["task"])
    arm, control, metric = results["headline"]["arm"], results["control"], metric_of(task)
    ours = metric.say(results["arms"][arm]["tasks"][task["task"]]["mean"])
    if arm == control:
        return f"{arm} reaches {ours} on {task['task']}."
    theirs = metric.show(results["arms"][control]["tasks"][task["task"]]["mean"])
    return f"On {task['task']}, {arm} reaches {ours}; {control} reaches {theirs}."


def headline_comparison(results: Results) -> Mapping[str, Any] | None:
    """Return the comparison that the claim is about; None when the run has only its control."""
    wanted = results["headline"]
    rows = (row for row in results["comparisons"] if row["arm"] == wanted["arm"] and row["task"] == wanted["task"])
    return next(rows, None)


def verdict(comparison: Mapping[str, Any]) -> str:
    """Say what the interval allows to be said."""
    word = VERDICTS[comparison["verdict"]]
    return word if comparison["verdict"] == "undecided" else f"{word} than {comparison['control']}"


def reading(results: Results, comparison: Mapping[str, Any]) -> str:
    """Say what the interval covers and what it does not."""
    seeds, control = len(results["seeds"]), results["control"]
    spread = (
        "" if comparison["sd"] is None else f" The difference varies by an sd of {_sd(results, comparison)} over seeds."
    )
    covers = "examples, not of seeds" if comparison["covers"] == "examples" else comparison["covers"]
    return (
        f"Paired with {control} on the same {comparison['examples']} examples, mean over {seeds} "
        f"seed{'s' if seeds != 1 else ''}. The interval covers the choice of {covers}.{spread}"
    )


def _sd(results: Results, comparison: Mapping[str, Any]) -> str:
    task = next(task for task in results["tasks"] if task["task"] == comparison["task"])
    metric = metric_of(task)
    return f"{comparison['sd'] * metric.scale:.{metric.digits}f} {metric.difference_unit}"


def _score_row(
    name: str, metric: Metric, extra: Mapping[str, Any], value: float, sd: float | None
) -> tuple[str, str, str, str, str, str]:
    return (
        name,
        metric.show(value) + metric.spread(sd),
        _number(extra.get("tokens")),
        _number(extra.get("characters")),
        _percent(extra.get("truncated")),
        _number(extra.get("seconds")),
    )


def _averaged(seeds: Any) -> dict[str, float | None]:
    seeds = list(seeds)
    found: dict[str, float | None] = {}
    for key in ("tokens", "characters", "truncated", "seconds"):
        values = [seed[key] for seed in seeds if seed.get(key) is not None]
        found[key] = _mean(values) if values else None
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"
