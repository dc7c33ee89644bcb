"""Pages of studies: every study has one, with figures and data, from plain results alone; text is escaped."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import RecipeError
from routelab.report.html import render, write_report
from routelab.report.numbers import csv_text
from routelab.report.panel import canvas
from routelab.report.studies import STUDIES, study_page
from routelab.report.studies_parts import tint

EVIL = "<script>alert(1)</script>"
NAMES = {"model": EVIL, "control": "the host"}


def interval(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01, "level": 0.95, "n": 4, "covers": "examples"}


def curve(layer: int, window: int, lag: int | None) -> dict[str, Any]:
    values = [1.0, 0.5, 0.05] + [0.0] * (window - 3)
    plain = [1.0] * window
    return {
        "layer": layer,
        "window": window,
        "tokens": 9,
        "acf": values,
        "lag": lag,
        "uncentred": plain,
        "lag_uncentred": None,
        "weights": [0.5**back for back in range(window, 0, -1)],
    }


def alignment(names: int, experts: int) -> dict[str, Any]:
    return {"share": [[1 / experts] * experts] * names, "nmi": 0.25, "purity": 0.5, "entropy": [1.0] * names}


def routed_layer(layer: int) -> dict[str, Any]:
    return {
        "layer": layer,
        "load": [0.7, 0.2, 0.1],
        "load_entropy": 0.8,
        "router_entropy": 0.6,
        "largest": 2.1,
        "unused": 0,
        "together": [[0.9, 0.4, 0.1], [0.4, 0.6, 0.2], [0.1, 0.2, 0.5]],
        "pairs": [{"experts": [0, 1], "share": 0.4, "lift": 1.5}],
        "tasks": alignment(2, 3),
        "classes": {"names": ["number", "word"], **alignment(2, 3)},
    }


def statistic(change: float | None) -> dict[str, Any]:
    known = change is not None
    return {
        "control": 10.0,
        "model": 9.0,
        "change": change,
        "low": -0.2 if known else None,
        "high": 0.1 if known else None,
    }


def group(n: int) -> dict[str, Any]:
    names = ("mean tokens", "median tokens", "P99 tokens", "mean characters", "P99 characters")
    statistics = {name: statistic(-0.1) for name in names} | {"ramble rate": statistic(None)}
    return {"n": n, "questions": n, "statistics": statistics if n else {}}


def point(name: str, at: dict[str, Any]) -> dict[str, Any]:
    each = {"mean": 0.6, "sd": 0.01, "seeds": [0.59, 0.61], "difference": interval(0.02)}
    groups = {"math": {"n": 5, "mean": 0.4, "control": 0.3, "difference": interval(0.1)}}
    return {"name": name, "point": at, "tasks": {"mmlu": each | {"groups": groups}, "mini-facts": each}}


def sweep(kind: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("mmlu", "mini-facts")
    return {
        "sweep": kind,
        "recipe": "r",
        "arm": "aar",
        "control_arm": "routing-only",
        "seeds": [0, 1],
        "tasks": [{"task": name, "metric": "accuracy", "examples": 9} for name in names],
        "host": dict.fromkeys(names, 0.5),
        "control": {name: {"mean": 0.58, "sd": 0.02, "seeds": [0.57, 0.59]} for name in names},
        "points": points,
        "failed": [{"cell": "from-09", "error": EVIL}],
        "planned": len(points) + 2,
    }


def seeded() -> dict[str, Any]:
    """A sweep of two seeds: what a training run has in its results."""
    trained = {"steps": 9, "tokens": 99, "seconds": 1.5, "loss_first": 2.0, "loss_last": 1.0, "frozen_identical": True}

    def arm(values: list[float], agreement: dict[str, Any]) -> dict[str, Any]:
        each = {str(seed): {"value": value, "seconds": 1.0} for seed, value in zip((3, 1), values, strict=True)}
        tasks = {"mini-facts": {"seeds": each, "mean": sum(values) / 2, "sd": 0.01}}
        train = dict.fromkeys(each, trained)
        counts = {"methods": [], "new_parameters": 0, "trainable_parameters": 9}
        return counts | {"tasks": tasks, "train": train, "agreement": agreement | {"with_host": 0.8}}

    compared = {
        "arm": "aar",
        "control": "routing-only",
        "task": "mini-facts",
        "difference": 0.02,
        "low": -0.01,
        "high": 0.05,
        "low_examples": 0.0,
        "high_examples": 0.04,
        "covers": "examples and seeds",
        "examples": 9,
        "sd": 0.01,
        "seeds": {"3": 0.01, "1": 0.03},
        "verdict": "undecided",
    }
    return {
        "sweep": "seeds",
        "recipe": "r",
        "host": {"name": "h", "family": "olmoe", "parameters": 9},
        "control": "routing-only",
        "seeds": [3, 1],
        "tasks": [{"task": "mini-facts", "metric": "accuracy", "examples": 9}],
        "base": {"mini-facts": {"value": 0.5, "seconds": 1.0}},
        "arms": {
            "aar": arm([0.61, 0.63], {"layers": {"0": 0.9}, "mean": 0.9}),
            "routing-only": arm([0.6, 0.6], {"layers": {}, "mean": None}),
        },
        "comparisons": [compared],
        "alignment": None,
        "same_batches": True,
        "failed": [{"cell": "seed-2", "error": EVIL}],
        "planned": 3,
    }


def timed(value: float) -> dict[str, Any]:
    return {"mean": value, "censored": 1, "converged": [0.0, 0.5, 1.0]}


def converged() -> dict[str, Any]:
    names = ("support", "attention", "state", "output")
    return {"n": 3, "num_steps": 3, "gap": 1.5, "positive": 2, **{name: timed(2.0) for name in names}}


MARGINS = {
    "units": 4,
    "steps": 3,
    "margin_median": 0.1,
    "beta_median": 0.5,
    "contracting": 1.0,
    "observed_median": 2.0,
    "bound_finite": 0.5,
    "bound_holds": 1.0,
    "bound_slack_median": None,
    "motion_median": 0.2,
    "still_moving": 0.4,
    "certified": 0.0,
    "violation_rate": None,
}
COSINES = {"cosine": -0.2, "same_mode": {"no_think": 0.6, "think": None}, "norm": {}, "think_share": 0.7}

FOUND: dict[str, dict[str, Any]] = {
    "acf": {"threshold": 0.1, "texts": 2, "tokens": 30, "curves": [curve(0, 4, 2), curve(0, 8, 2), curve(1, 8, None)]},
    "sinks": {
        "texts": 4,
        "tokens": 30,
        "routed": 0,
        "marked": 1,
        "names": NAMES,
        "layers": [{"layer": i, "model": 0.2, "control": 0.1, "difference": interval(0.1)} for i in range(2)],
        "patch": {
            "texts": 4,
            "tokens": 30,
            "layers": [0, 1],
            "control": [0.1, 0.1],
            "before": 0.0,
            "patches": [
                {"patched": group, "moved": 0.4, "differences": [{"layer": i, **interval(-0.1 * i)} for i in range(2)]}
                for group in ([0], [1], [0, 1])
            ],
        },
    },
    "routing": {
        "texts": 2,
        "tokens": 30,
        "experts": 3,
        "top_k": 2,
        "tasks": ["a", EVIL],
        "names": NAMES,
        "layers": [routed_layer(0), routed_layer(3)],
        "agreement": {"0": 1.0, "3": 0.5},
        "control": {"layers": [routed_layer(0), routed_layer(3)]},
    },
    "gates": {
        "texts": 2,
        "bins": 2,
        "layers": [
            {
                "layer": 1,
                "tokens": 30,
                "views": [
                    {
                        "view": view,
                        "mean": 0.5,
                        "experts": [0.4, 0.6],
                        "sd": [0.1, 0.1],
                        "histogram": [0.5, 0.5],
                        "outside": 0.0,
                    }
                    for view in ("time", "frequency")
                ],
                "moved": {"all views": 0.3, "time": 0.2, "frequency": 0.1},
                "replaced": {"all views": 0.15, "time": 0.1, "frequency": 0.05},
            }
        ],
    },
    "lengths": {
        "runs": 1,
        "answers": 4,
        "level": 0.95,
        "ramble": 1000,
        "names": NAMES,
        "groups": {name: group(n) for name, n in (("all", 4), ("both wrong", 3), ("both correct", 0))},
    },
    "depth": sweep(
        "depth",
        [
            point("from-00", {"form": "from", "layer": 0, "layers": [0, 1]}),
            point("only-01", {"form": "only", "layer": 1, "layers": [1]}),
        ],
    ),
    "seeds": seeded(),
    "window": sweep("window", [point("time-020", {"window": 20, "views": ["time"]})]),
    "convergence": {"settings": {"D": converged(), "L": converged()}},
    "working-set": {
        "num_steps": 4,
        "discovery_steps": 2,
        "coverage": {name: {"n": 2, "density": 0.4, "future_mass": 0.9} for name in ("wise", "size_matched")},
        "stability": {"n": 2, "rolling": [0.8, 0.9, 1.0], "endpoint": 0.9, "stable": {"0.90": [0.0] * 4}},
        "audit": {"units": 10, "equal": 10, "largest_difference": 0},
        "heads": {},
        "maps": {
            "question": EVIL,
            "tokens": 30,
            "block_size": 16,
            "shares": [[[1.0], [share, 1.0]] for share in (0.0, 0.25, 0.5, 1.0)],
        },
    },
    "margins": {"prompts": 2, "num_steps": 3, "each": [MARGINS, MARGINS], "mean": MARGINS},
    "interference": {
        "examples": {"no_think": 2, "think": 2},
        "layers": [{"layer": 0, **COSINES}, {"layer": 1, **COSINES}],
        "overall": {"layer": None, **COSINES},
        "penalty": None,
    },
}

MANIFEST = {"sessions": [], "seeds": [], "versions": {}}


def results(study: str, found: Mapping[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps(found))
    return {"study": study, "title": study, "host": "h", "found": plain, "commands": [["all", "routelab study"]]}


@pytest.mark.parametrize("study", sorted(STUDIES))
def test_every_study_has_a_page_with_figures_and_data(study: str, tmp_path: Path) -> None:
    page = study_page(results(study, FOUND[study]), MANIFEST)
    written = write_report(tmp_path / "report.html", tmp_path / "figures", page)
    html = (tmp_path / "report.html").read_text()
    assert EVIL not in html
    assert page.claim
    assert page.panels
    assert page.tables
    assert len({panel.stem for panel in page.panels}) == len(page.panels)
    kinds = {path.suffix for path in written}
    assert kinds == {".html", ".png", ".svg", ".csv"}
    for panel in page.panels:
        rows = list(csv.reader(io.StringIO(panel.data)))
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1
    for table in page.tables:
        assert all(len(row) == len(table.columns) for row in table.rows), table.title
    # Every text of a drawing has a colour of the page, so that none stays black on a dark ground.
    assert all("fill: var(--" in text for text in re.findall(r"<text [^>]*>", html))
    assert page.commands[0][1] in html


def test_claims_say_what_was_found() -> None:
    def claim(study: str, **changes: Any) -> str:
        return study_page(results(study, FOUND[study] | changes), MANIFEST).claim

    assert "stays above 0.1 in 1 of 2 layers" in claim("acf")
    assert "falls below 0.1 at lag 2 over 1 layers" in claim("acf", curves=[curve(0, 8, 2)])
    assert "more attention goes to the first token: +10.000 points" in claim("sinks")
    unclear = [{"layer": i, "model": 0.2, "control": 0.2, "difference": interval(0.001)} for i in range(2)]
    assert "no change of the sink shows" in claim("sinks", layers=unclear)
    assert "change the experts of 30.0% of the tokens; their mean gate is 0.50" in claim("gates")
    assert "10.0% fewer tokens than the host (change −20.0% to +10.0%)" in claim("lengths")
    assert "never both wrong" in claim("lengths", groups={"all": group(2), "both wrong": group(0)})
    assert "75.0% of the experts are those that the host chooses" in claim("routing")
    assert "on mmlu with layers from 0 on: +2.0 points" in claim("depth")
    assert "No cell but the control is finished" in claim("depth", points=[])
    assert "2 of 3 prompts" in claim("convergence")
    said = claim("seeds")
    assert (
        "Against routing-only over 2 seeds: aar on mini-facts +2.0 points (−1.0 to +5.0), no difference shown" in said
    )
    alone = claim("seeds", comparisons=[])
    assert alone == "routing-only reaches 60.0% accuracy on mini-facts over 2 seeds."


def test_a_sweep_without_points_and_a_failure_are_shown() -> None:
    page = study_page(results("window", FOUND["window"] | {"points": []}), MANIFEST)
    assert [table.title for table in page.tables][-1] == "cells that failed"
    assert "&lt;script&gt;" in render(page)
    seeds = study_page(results("seeds", FOUND["seeds"]), MANIFEST)
    assert seeds.note == "2 of 3 seeds are finished: 3, 1."
    assert [table.title for table in seeds.tables][-1] == "cells that failed"
    assert [panel.stem for panel in seeds.panels] == ["seeds-mini-facts-scores", "seeds-mini-facts-differences"]


def test_a_page_of_many_experts_stays_small(tmp_path: Path) -> None:
    layers, experts = 40, 256
    kinds = {"names": ["number", "word"], **alignment(2, experts)}
    square = [[(1 + (a * b) % 7) / 9 for b in range(experts)] for a in range(experts)]
    wide = {"load": [i / 32640 for i in range(experts)], "together": square, "tasks": kinds, "classes": kinds}
    each = [routed_layer(layer) | wide for layer in range(layers)]
    agreed = dict.fromkeys(map(str, range(layers)), 0.5)
    found = FOUND["routing"] | {"experts": experts, "layers": each, "control": {"layers": each}, "agreement": agreed}
    page = study_page({"study": "routing", "title": "", "host": "h", "found": found, "commands": []}, MANIFEST)
    written = {path.name: path.stat().st_size for path in write_report(tmp_path / "r.html", tmp_path, page)}
    assert written["r.html"] < 2_000_000  # the limit is 6 MB
    assert max(size for name, size in written.items() if name.endswith(".svg")) < 1_000_000


def test_the_strongest_of_columns_finer_than_pixels_is_drawn() -> None:
    _, axes = canvas(1)
    matrix = [[0.0] * 5000 for _ in range(2)]
    matrix[1][3001], matrix[0][7] = 0.5, -0.25
    assert tint(axes, matrix) == 0.5
    blue, orange = (image.get_array() for image in axes.get_images())
    assert blue.shape == (2, 1000)
    assert (blue.max(), blue[1][600]) == (0.5, 0.5)
    assert (orange.max(), orange[0][1]) == (0.25, 0.25)
    assert axes.get_ylim() == (2, 0)
    few = canvas(1)[1]
    tint(few, [[0.1, 0.2]])
    assert not few.get_images()


def test_unknown_and_partial_results_are_named() -> None:
    with pytest.raises(RecipeError, match="no study is called 'sink'; did you mean 'sinks'"):
        study_page(results("sink", {}), MANIFEST)
    with pytest.raises(RecipeError, match="lack commands, found"):
        study_page({"study": "acf", "title": "", "host": None}, MANIFEST)


def test_csv_quotes() -> None:
    assert csv_text(["a", "b"], [[1, 0.123456789], ['x,"', ""]]) == 'a,b\n1,0.123457\n"x,""",\n'
