"""Tables and sentences say what the numbers say."""

from __future__ import annotations

import io
from types import ModuleType

from rich.console import Console

from routelab.report.tables import claim, comparison_table, headline_comparison, reading, score_table, tables
from routelab.report.terminal import print_page, print_trace
from routelab.report.theme import arm_colours, metric_of
from routelab.report.training import training_page


def test_score_table_has_the_host_and_every_arm(example: ModuleType) -> None:
    results = example.example_results()
    table = score_table(results, results["tasks"][0])
    assert [row[0] for row in table.rows] == ["host, untouched", "aar", "aar-shuffled", "routing-only"]
    assert list(table.columns) == ["arm", "accuracy ± sd", "tokens", "characters", "cut off", "seconds"]
    assert list(table.rows[1][:3]) == ["aar", "65.5% ± 1.1", "62.0"]


def test_a_column_that_no_row_fills_is_left_out(example: ModuleType) -> None:
    results = example.example_results()
    for arm in results["arms"].values():
        for seed in arm["tasks"]["mini-facts"]["seeds"].values():
            seed.update(tokens=None, characters=None, truncated=None)
    assert list(score_table(results, results["tasks"][1]).columns) == ["arm", "accuracy ± sd", "seconds"]


def test_comparisons_carry_interval_spread_and_verdict(example: ModuleType) -> None:
    rows = comparison_table(example.example_results()).rows
    said = ["aar", "mini-arithmetic", "+3.2 points", "+0.6 to +5.8", "+1.2 to +5.2", "0.8", "better"]
    assert rows[0] == said
    assert rows[1][-1] == "no difference shown"
    assert rows[1][3] == "−2.1 to +2.8"


def test_loss_is_shown_in_nats(example: ModuleType) -> None:
    metric = metric_of({"metric": "loss", "task": "text-loss"})
    assert metric.show(1.23456) == "1.2346"
    assert metric.difference(-0.0021) == "−0.0021 nats per token"


def test_a_loss_is_claimed_as_a_loss(example: ModuleType) -> None:
    results = example.example_results()
    results["tasks"] = [{"task": "text-loss", "metric": "loss", "examples": 60}]
    results["headline"]["task"] = "text-loss"
    for number, arm in enumerate(results["arms"].values()):
        arm["tasks"] = {"text-loss": {"seeds": {}, "mean": 1.5 + number / 8, "sd": None}}
    assert claim(results) == "On text-loss, aar reaches a loss of 1.5000; routing-only reaches 1.7500."


def test_claim_and_reading(example: ModuleType) -> None:
    results = example.example_results()
    comparison = headline_comparison(results)
    assert comparison is not None
    assert claim(results).startswith("On mini-arithmetic, aar reaches 65.5%")
    assert "same 300 examples" in reading(results, comparison)
    assert "the choice of examples and seeds" in reading(results, comparison)


def test_control_is_grey_and_arms_keep_their_colours() -> None:
    colours = arm_colours(["a", "control", "b"], "control")
    assert len(set(colours.values())) == 3
    assert arm_colours(["a", "b"], "control")["a"] == colours["a"]


def test_terminal_shows_every_table_without_markup_trouble(example: ModuleType) -> None:
    results = example.example_results()
    results["arms"]["[bold]odd"] = results["arms"].pop("aar-shuffled")
    results["comparisons"] = [row for row in results["comparisons"] if row["arm"] == "aar"]
    console = Console(file=io.StringIO(), width=160)
    print_page(console, training_page(results, [], example.example_manifest()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]odd" in text
    assert all(table.title in text for table in tables(results))


def test_terminal_trace() -> None:
    step = {"position": 0, "token": "[a]\n", "layer": 2, "experts": [3, 1], "weights": [0.75, 0.25]}
    traced = {
        "methods": ["aar: layers 2"],
        "layers": [2],
        "steps": [{**step, "gates": {"time": 0.5}, "first_token": 0.25}],
    }
    console = Console(file=io.StringIO(), width=120)
    print_trace(console, traced)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(part in text for part in ("layer 2", "[a]⏎", "3\u00a0.75", "0.25")), text
