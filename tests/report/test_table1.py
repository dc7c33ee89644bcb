"""The page of a Table 1 run: means over seeds, paired differences, heat maps, and cells that failed."""

from __future__ import annotations

from typing import Any

from routelab.report.html import render
from routelab.report.table1 import accuracy_table, claim, panels, table1_page


def cell(experts: int, loss: str, seed: int, accuracy: float, nmi: float) -> dict[str, Any]:
    counts = [[10 if task % experts == expert else 1 for expert in range(experts)] for task in range(4)]
    return {
        "tasks": 4,
        "experts": experts,
        "loss": loss,
        "seed": seed,
        "accuracy": accuracy,
        "nmi": nmi,
        "purity": 0.5,
        "dead_experts": 0,
        "seconds": 3.0,
        "alignment": counts,
    }


CELLS = [
    cell(1, "ce", 0, 0.80, 0.0),
    cell(3, "ce", 0, 0.80, 0.1),
    cell(3, "ce", 1, 0.84, 0.1),
    cell(3, "task_router", 0, 0.83, 0.9),
    cell(3, "task_router", 1, 0.85, 0.9),
]


def results(**changes: Any) -> dict[str, Any]:
    return {
        "name": "t",
        "title": "T",
        "note": "",
        "seeds": [0, 1],
        "planned": 9,
        "cells": CELLS,
        "failed": [],
        "settings": {"epochs": 6},
        "commands": [],
        **changes,
    }


def test_the_claim_compares_cells_of_one_shape_and_seed() -> None:
    assert claim(CELLS) == (
        "The task-router loss moves the mutual information of task and expert from 0.10 to 0.90, and accuracy by +2.0 "
        "points (2 paired cells)."
    )
    assert claim([]) == "No cell has finished yet."
    assert claim(CELLS[:2]) == "2 cells with one loss."


def test_the_table_has_means_and_spreads_and_dashes() -> None:
    table = accuracy_table(CELLS)
    assert list(table.columns) == ["tasks", "experts", "CE", "CE + task router"]
    assert table.rows == [["4", "1", "80.0", "–"], ["4", "3", "82.0 ± 2.8", "84.0 ± 1.4"]]


def test_there_is_a_heat_map_for_every_loss_of_one_shape() -> None:
    assert [panel.stem for panel in panels(CELLS)] == ["accuracy", "routing-ce", "routing-task-router"]
    assert panels([]) == []


def test_no_number_of_tasks_is_drawn_off_its_axes() -> None:
    figure = panels([*CELLS, {**cell(9, "ce", 0, 0.20, 0.1), "tasks": 8}])[0].figure
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert axes.get_lines()
        for line in axes.get_lines():
            assert low <= min(line.get_ydata()) <= max(line.get_ydata()) <= high
            assert axes.get_xlim()[0] <= 1 < 9 <= axes.get_xlim()[1]


def test_the_page_counts_cells_and_names_those_that_failed() -> None:
    page = table1_page(results(failed=[{"cell": "tasks-9", "error": "<b>killed"}]), {})
    assert list(page.eyebrow) == ["5 of 9 cells", "2 seeds"]
    text = render(page)
    assert "&lt;b&gt;killed" in text
    assert "setting epochs" in text
