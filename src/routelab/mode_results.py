"""``results.json`` of a run on hybrid thinking, from its summaries and records alone."""

from __future__ import annotations

import shlex
from typing import Any

from routelab.evaluate.leakage import compare
from routelab.recipe.modes import ModesRecipe
from routelab.rundir import BASE, RunDirectory, read_json, read_jsonl

COMPARED = ("accuracy", "tokens", "reflective", "reflective_share", "working_share", "truncated")


def collect_modes(recipe: ModesRecipe, run: RunDirectory) -> dict[str, Any]:
    """Return every number of a finished run: measures by arm, seed and mode, differences, the probe."""
    others = [arm for arm in recipe.arms if arm != recipe.control]
    probe = run.path / "interference.json"
    return {
        "schema": 1,
        "kind": "modes",
        "name": recipe.name,
        "title": recipe.title,
        "note": recipe.note,
        "host": {"name": recipe.host.name, **read_json(run.records(BASE, None) / "host.json")},
        "control": recipe.control,
        "seeds": list(recipe.seeds),
        "task": recipe.evaluate.task,
        "base": read_json(run.records(BASE, None) / "leakage.json")["as told"]["modes"],
        "arms": {arm: _arm(recipe, run, arm) for arm in recipe.arms},
        "comparisons": [
            {"arm": arm, "mode": mode, "measures": _compared(recipe, run, arm, mode)}
            for arm in others
            for mode in ("no_think", "think")
        ],
        "corpus": read_json(run.path / "corpus.json"),
        "interference": read_json(probe) if probe.is_file() else None,
        "commands": [
            ["The whole run, into a new directory", _line("run", run.recipe, "--out", f"{run.path}-again")],
            ["Tables, figures and this page from results.json", _line("report", run.path)],
        ],
    }


def _arm(recipe: ModesRecipe, run: RunDirectory, arm: str) -> dict[str, Any]:
    trained = {str(seed): read_json(run.trained(arm, seed)) for seed in recipe.seeds}
    found = {str(seed): read_json(run.records(arm, seed) / "leakage.json") for seed in recipe.seeds}
    return {
        "modes": {seed: each["as told"]["modes"] for seed, each in found.items()},
        "crossed": {
            seed: {expert: each[expert]["modes"] for expert in each if expert != "as told"}
            for seed, each in found.items()
        },
        "train": {
            seed: {key: sum(phase[key] for phase in each["phases"]) for key in ("steps", "tokens", "seconds")}
            for seed, each in trained.items()
        },
        "trainable_parameters": next(iter(trained.values()))["method"]["trainable_parameters"],
    }


def _compared(recipe: ModesRecipe, run: RunDirectory, arm: str, mode: str) -> dict[str, Any]:
    ours, theirs = (
        [read_jsonl(run.records(each, seed) / f"{mode}.jsonl") for seed in recipe.seeds]
        for each in (arm, recipe.control)
    )
    return compare(ours, theirs, COMPARED, resample_seeds=len(recipe.seeds) > 1)


def _line(*words: object) -> str:
    return shlex.join(["routelab", *map(str, words)])
