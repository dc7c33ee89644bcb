"""``results.json`` of a run on working sets, from its records alone."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from statistics import fmean
from typing import Any

from routelab.evaluate.stats import paired_bootstrap_over_seeds
from routelab.recipe.working_sets import Variant, WorkingSetsRecipe
from routelab.rundir import RunDirectory, read_json, read_jsonl

SCORES = ("f1", "em", "loss")
Records = list[list[dict[str, Any]]]


def collect(recipe: WorkingSetsRecipe, run: RunDirectory) -> dict[str, Any]:
    """Return every number of a finished run: scores by context length and variant, differences, what went on inside."""
    return {
        "schema": 1,
        "kind": "working-sets",
        "name": recipe.name,
        "title": recipe.title,
        "note": recipe.note,
        "host": recipe.host.name,
        "num_steps": recipe.num_steps,
        "wise": asdict(recipe.base),
        "conditions": list(recipe.conditions),
        "seeds": list(recipe.seeds),
        "source": recipe.questions.source,
        "contexts": {str(tokens): _context(recipe, run, tokens) for tokens in recipe.questions.contexts},
        "commands": [
            ["The whole run, into a new directory", _line("run", run.recipe, "--out", f"{run.path}-again")],
            ["Tables, figures and this page from results.json", _line("report", run.path)],
        ],
    }


def _context(recipe: WorkingSetsRecipe, run: RunDirectory, tokens: int) -> dict[str, Any]:
    folder = run.path / "records" / f"tokens-{tokens}"
    first = tokens == recipe.questions.contexts[0]

    def read(name: str) -> Records:
        return [read_jsonl(folder / name / f"seed-{seed}.jsonl") for seed in recipe.seeds]

    full, wise = read("full"), read("wise")

    def scores(variant: Variant) -> dict[str, Any]:
        own = read(variant.name)
        found: dict[str, Any] = {
            "seeds": [{score: fmean(each[score] for each in seed) for score in SCORES} for seed in own],
            "changed": [
                sum(ours["answer"] != theirs["answer"] for ours, theirs in zip(seed, base, strict=True))
                for seed, base in zip(own, full, strict=True)
            ],
        }
        if variant.name != "full":
            found["from full"] = {score: _difference(own, full, score) for score in SCORES}
        if variant.name not in ("full", "wise"):
            found["from wise"] = {score: _difference(own, wise, score) for score in SCORES}
        return found

    lengths = read_json(folder / "questions.json")
    return {
        "n": lengths["n"],
        "tokens": fmean(lengths["tokens"]),
        "variants": {variant.name: scores(variant) for variant in recipe.variants},
        "sweeps": {variant.name: scores(variant) for variant in recipe.swept} if first else {},
        **{
            name: read_json(path) if (path := folder / f"{name}.json").is_file() else None
            for name in ("routing", "convergence")
        },
    }


def _difference(ours: Records, theirs: Records, score: str) -> dict[str, Any]:
    """Ours minus theirs, paired by question; seeds are resampled too where there are several."""
    first, second = ([{each["id"]: each[score] for each in seed} for seed in runs] for runs in (ours, theirs))
    return asdict(paired_bootstrap_over_seeds(first, second, resample_seeds=len(first) > 1, resamples=2000))


def _line(*words: object) -> str:
    return shlex.join(["routelab", *map(str, words)])
