"""A small, invented ``results.json`` with every field that a run writes, for the tests of the report."""

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
