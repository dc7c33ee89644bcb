"""``results.json`` of a run on working sets, from its records alone."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from statistics import fmean
from typing import Any

from routelab.evaluate.paired_answers import Answers, compare_answers, split_half
from routelab.evaluate.stats import average_seeds
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
            "seeds": [{score: fmean(each[score] for each in seed) for score in SCORES} for seed in own]
        }
        if variant.name != "full":
            found["from full"] = _differences(own, full)
        if variant.name not in ("full", "wise"):
            found["from wise"] = _differences(own, wise)
        return found

    lengths = read_json(folder / "questions.json")
    return {
        "n": lengths["n"],
        "tokens": fmean(lengths["tokens"]),
        "variants": {variant.name: scores(variant) for variant in recipe.variants},
        "sweeps": {variant.name: scores(variant) for variant in recipe.swept} if first else {},
        "split_half": _split_half(wise, read("size_matched")) if "size_matched" in recipe.conditions else None,
        **{
            name: read_json(path) if (path := folder / f"{name}.json").is_file() else None
            for name in ("routing", "convergence")
        },
    }


def _differences(ours: Records, theirs: Records) -> dict[str, Any]:
    """Ours minus theirs, paired by question (seeds are resampled too where there are several), and how many answers of
    a seed changed."""
    gold = {each["id"]: [each["gold"]] for each in ours[0]}
    several = len(ours) > 1
    found = compare_answers(_answers(ours), _answers(theirs), gold, resample_seeds=several, resamples=2000)
    return {score: found[score]["difference"] for score in SCORES} | {"changed": found["changed"] / len(ours)}


def _split_half(ours: Records, theirs: Records) -> dict[str, Any] | None:
    """The difference in F1, looked for in either half of the questions (appendix C.5); None with too few of them."""
    if len(ours[0]) < 4:
        return None
    first, second = (
        average_seeds([{each["id"]: each["f1"] for each in seed} for seed in runs]) for runs in (ours, theirs)
    )
    return split_half(first, second, resamples=2000)


def _answers(runs: Records) -> list[Answers]:
    return [
        Answers({each["id"]: each["answer"] for each in seed}, {each["id"]: each["loss"] for each in seed})
        for seed in runs
    ]


def _line(*words: object) -> str:
    return shlex.join(["routelab", *map(str, words)])
