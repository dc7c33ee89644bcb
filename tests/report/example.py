"""Small, invented ``results.json`` with every field that runs write, for the tests of the report."""

from __future__ import annotations

from typing import Any


def example_results() -> dict[str, Any]:
    def seeds(values: list[float], tokens: float) -> dict[str, Any]:
        return {
            str(i): {"value": v, "tokens": tokens + i, "characters": 4 * tokens, "truncated": 0.01, "seconds": 9.0}
            for i, v in enumerate(values)
        }

    def arm(values: list[float], facts: list[float], new: int, agreement: float) -> dict[str, Any]:
        return {
            "methods": [{"name": "aar", "layers": [0, 1, 2, 3]}],
            "new_parameters": new,
            "trainable_parameters": 12288 + new,
            "train": {
                str(i): {
                    "steps": 120,
                    "tokens": 98304,
                    "seconds": 31.5 + i,
                    "loss_first": 0.91,
                    "loss_last": 0.55 + 0.01 * i,
                    "frozen_identical": True,
                }
                for i in range(3)
            },
            "tasks": {
                "mini-arithmetic": {"seeds": seeds(values, 61), "mean": sum(values) / 3, "sd": 0.011},
                "mini-facts": {"seeds": seeds(facts, 0), "mean": sum(facts) / 3, "sd": 0.004},
            },
            "agreement": {
                "layers": {str(layer): agreement - 0.03 * layer for layer in range(4)},
                "mean": agreement - 0.045,
                "with_host": agreement - 0.1,
            },
        }

    arms = {
        "aar": arm([0.655, 0.64, 0.67], [0.78, 0.785, 0.775], 48640, 0.86),
        "aar-shuffled": arm([0.63, 0.615, 0.635], [0.77, 0.78, 0.775], 48640, 0.89),
        "routing-only": arm([0.625, 0.61, 0.635], [0.78, 0.775, 0.775], 0, 1.045),
    }
    arms["routing-only"]["agreement"] = {"layers": {}, "mean": None, "with_host": 0.91}
    comparisons = []
    for name, task, low, mid, high, verdict in [
        ("aar", "mini-arithmetic", 0.006, 0.032, 0.058, "better"),
        ("aar-shuffled", "mini-arithmetic", -0.021, 0.003, 0.028, "undecided"),
        ("aar", "mini-facts", -0.012, 0.003, 0.018, "undecided"),
        ("aar-shuffled", "mini-facts", -0.017, -0.002, 0.013, "undecided"),
    ]:
        comparisons.append(
            {
                "arm": name,
                "control": "routing-only",
                "task": task,
                "difference": mid,
                "low": low,
                "high": high,
                "covers": "examples and seeds",
                "low_examples": low + 0.006,
                "high_examples": high - 0.006,
                "sd": 0.008,
                "verdict": verdict,
                "examples": 300,
                "seeds": {str(i): mid + 0.01 * (i - 1) for i in range(3)},
            }
        )
    return {
        "schema": 1,
        "name": "mini-aar",
        "title": "Attention-aware routing on mini-moe",
        "note": "An invented example.",
        "host": {"name": "mini-moe", "family": "olmoe", "parameters": 3_512_064},
        "control": "routing-only",
        "seeds": [0, 1, 2],
        "headline": {"arm": "aar", "task": "mini-arithmetic"},
        "tasks": [
            {"task": "mini-arithmetic", "metric": "accuracy", "examples": 300},
            {"task": "mini-facts", "metric": "accuracy", "examples": 300},
        ],
        "base": {
            "mini-arithmetic": {"value": 0.6, "tokens": 63.0, "characters": 250.0, "truncated": 0.02, "seconds": 9.1},
            "mini-facts": {"value": 0.77, "tokens": None, "characters": None, "truncated": None, "seconds": 2.2},
        },
        "arms": arms,
        "comparisons": comparisons,
        "same_batches": True,
        "commands": [["The whole run", "routelab run mini/aar --out runs/mini-aar"]],
    }


def example_metrics() -> list[dict[str, Any]]:
    rows = []
    for a, arm in enumerate(["aar", "aar-shuffled", "routing-only"]):
        for seed in range(3):
            for step in range(10, 130, 10):
                wobble = ((step * 7 + seed * 13 + a * 5) % 11 - 5) / 150
                loss = 0.55 + 0.02 * a + 0.4 / (1 + step / 25) + wobble
                rows.append({"arm": arm, "seed": seed, "step": step, "loss": loss})
    return rows


def example_manifest() -> dict[str, Any]:
    return {
        "name": "mini-aar",
        "seeds": [0, 1, 2],
        "data": {"mini-arithmetic (train)": {"rows": 2000, "sha256": "9f" * 32}},
        "stages": [],
        "versions": {"python": "3.11.2", "torch": "2.13.0", "transformers": "5.24.0"},
        "commit": None,
        "hardware": {"processor": "a processor", "cores": 2, "threads": 2, "memory_bytes": 2**34, "accelerator": None},
        "sessions": [
            {
                "command": "routelab run mini/aar",
                "started": "2026-01-02T03:04:05+00:00",
                "ended": None,
                "seconds": 200.0,
            }
        ],
    }


def modes_results() -> dict[str, Any]:
    """A run on hybrid thinking, with its probe."""

    def mode(accuracy: float, words: float) -> dict[str, Any]:
        spread = {"mean": 30.0 + words, "median": 29.0, "p99": 55.0}
        shares = dict.fromkeys(("reflective_share", "thought_share", "working_share", "ramble_rate"), 0.25)
        return {
            "n": 30,
            "accuracy": accuracy,
            "reflective": words,
            **shares,
            "truncated": 1,
            "empty": 0,
            "tokens": spread,
            "characters": spread,
        }

    def both(accuracy: float, words: float) -> dict[str, Any]:
        return {"no_think": mode(accuracy, words), "think": mode(accuracy + 0.1, 3.0)}

    def interval(mean: float) -> dict[str, Any]:
        return {"mean": mean, "low": mean - 0.1, "high": mean + 0.1, "n": 30, "level": 0.95, "covers": "examples"}

    names = ("accuracy", "tokens", "reflective", "reflective_share", "working_share", "truncated")
    trained = {"0": {"steps": 10, "tokens": 900, "seconds": 2.0}, "1": {"steps": 10, "tokens": 900, "seconds": 2.5}}
    cosines = {"cosine": -0.2, "same_mode": {"no_think": 0.6, "think": 0.5}, "norm": {}, "think_share": 0.7}
    arms = {
        arm: {
            "modes": {str(seed): both(accuracy + 0.02 * seed, words) for seed in range(2)},
            "crossed": {
                str(seed): {"no_think": both(accuracy, words), "think": both(accuracy, 2.0)} for seed in range(2)
            },
            "train": trained,
            "trainable_parameters": 1000,
        }
        for arm, accuracy, words in (("path-lock", 0.6, 0.1), ("sft", 0.55, 1.4))
    }
    compared = [
        {"arm": "path-lock", "mode": mode, "measures": {name: interval(-0.5) for name in names}}
        for mode in ("no_think", "think")
    ]
    return {
        "schema": 1,
        "kind": "modes",
        "name": "m",
        "title": "Path-Lock",
        "note": "",
        "host": {"name": "mini-dense", "family": "qwen3", "parameters": 2_204_064},
        "control": "sft",
        "seeds": [0, 1],
        "task": "mini-arithmetic",
        "base": both(0.5, 0.0),
        "arms": arms,
        "comparisons": compared,
        "corpus": {},
        "interference": {
            "examples": {"no_think": 2, "think": 2},
            "layers": [{"layer": layer, **cosines} for layer in range(3)],
            "overall": {"layer": None, **cosines},
            "penalty": {"penalty": 0.01, "of_gain": 0.2},
        },
        "commands": [["The whole run", "routelab run mini/pathlock"]],
    }


def working_sets_results() -> dict[str, Any]:
    """A run on working sets, with maps of four steps."""

    def variant(f1: float) -> dict[str, Any]:
        return {"seeds": [{"f1": f1, "em": f1, "loss": 1.5}]}

    def away(mean: float) -> dict[str, Any]:
        found = {"mean": mean, "low": mean - 0.05, "high": mean + 0.05, "n": 8, "level": 0.95, "covers": "examples"}
        return {"f1": found, "changed": 1.0}

    def timed(mean: float) -> dict[str, Any]:
        return {"mean": mean, "censored": 1, "converged": [0.0, 0.5, 1.0, 1.0]}

    quantities = {name: timed(2.0) for name in ("support", "attention", "state", "output")}
    shares = [[[1.0], [share, 1.0], [0.0, share, 1.0]] for share in (0.125, 0.25, 0.5, 0.5)]
    kept = {"n": 2, "density": 0.4, "future_mass": 0.9}
    stable = {"0.90": [0.0, 0.5, 1.0, 1.0], "0.95": [0.0, 0.0, 0.5, 1.0]}
    context = {
        "n": 8,
        "tokens": 40.0,
        "variants": {"full": variant(0.5), "truncate": {**variant(0.2), "from full": away(-0.3)}}
        | {"wise": {**variant(0.5), "from full": away(0.0)}},
        "sweeps": {},
        "split_half": None,
        "routing": {
            "coverage": {"wise": kept},
            "stability": {"n": 2, "rolling": [0.8, 0.9, 1.0], "endpoint": 0.9, "stable": stable},
            "heads": {},
            "audit": {"units": 10, "equal": 10, "largest_difference": 0},
            "maps": {"question": "q", "tokens": 40, "block_size": 16, "shares": shares},
        },
        "convergence": {"D": {"n": 3, "num_steps": 4, "gap": 1.5, "positive": 2, **quantities}},
    }
    return {
        "schema": 1,
        "kind": "working-sets",
        "name": "w",
        "title": "Working sets",
        "note": "",
        "host": "mini-recurrent",
        "num_steps": 4,
        "wise": {"condition": "wise", "discovery_steps": 2, "block_size": 16},
        "conditions": ["full", "truncate", "wise"],
        "seeds": [0],
        "source": "mini-paragraphs",
        "contexts": {"32": context},
        "commands": [["The whole run", "routelab run mini/wise"]],
    }


def table1_results() -> dict[str, Any]:
    """Two cells of a table."""
    counts = [[9, 1], [2, 8], [5, 5]]
    cells = [
        {"tasks": 3, "experts": 2, "loss": loss, "seed": seed, "accuracy": 0.5 + 0.1 * seed, "nmi": nmi, "purity": 0.5}
        | {"dead_experts": 0, "seconds": 3.0, "alignment": counts}
        for loss, nmi in (("ce", 0.1), ("task_router", 0.8))
        for seed in range(2)
    ]
    head = {"schema": 1, "kind": "table1", "name": "t", "title": "Table 1", "note": "", "seeds": [0, 1]}
    return head | {
        "planned": 9,
        "cells": cells,
        "failed": [],
        "settings": {"epochs": 6},
        "commands": [["all", "routelab"]],
    }
