"""The page of a training run: arms on one host against their control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from routelab.report.afterwards import harness_tables, study_entries
from routelab.report.alignment import alignment_panel, alignment_table
from routelab.report.figures import panels
from routelab.report.page import Page, Verdict, facts, started
from routelab.report.tables import claim, headline_comparison, reading, tables, verdict
from routelab.report.theme import VARIABLES, arm_colours, metric_of


def training_page(
    results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]
) -> Page:
    """Return the page of the results, metrics and manifest of a training run."""
    arms = arm_colours(list(results["arms"]), results["control"])
    colours = {arm: f"var(--{VARIABLES[colour][0]})" for arm, colour in arms.items()}
    seeds = len(results["seeds"])
    aligned = results.get("alignment") is not None
    return Page(
        title=results["title"] or results["name"],
        eyebrow=[f"host {results['host']['name']}", f"{seeds} seed{'s' if seeds != 1 else ''}", *started(manifest)],
        claim=claim(results),
        verdict=_verdict(results, colours),
        note=results["note"],
        draw=lambda: [*panels(results, metrics), *([alignment_panel(results)] if aligned else [])],
        tables=[*tables(results), *harness_tables(results), *([alignment_table(results)] if aligned else [])],
        commands=results["commands"],
        facts=facts(manifest),
        colours=colours,
        entries=study_entries(results),
    )


def _verdict(results: Mapping[str, Any], colours: Mapping[str, str]) -> Verdict | None:
    comparison = headline_comparison(results)
    if comparison is None:
        return None
    metric = metric_of(next(task for task in results["tasks"] if task["task"] == results["headline"]["task"]))
    return Verdict(
        number=metric.difference(comparison["difference"]),
        interval=metric.interval(comparison["low"], comparison["high"]),
        word=verdict(comparison),
        colour=colours[results["headline"]["arm"]],
        reading=reading(results, comparison),
        clear=comparison["verdict"] != "undecided",
    )
