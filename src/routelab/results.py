"""``results.json``: what a finished run directory says, in numbers, from its summaries and records alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from routelab.afterwards import harness_commands, harness_rows, study_rows
from routelab.evaluate.evaluation import read_scores
from routelab.evaluate.stats import Scores, mean_sd, paired_bootstrap_over_seeds
from routelab.recipe import Recipe, TaskSpec
from routelab.rundir import BASE, RunDirectory, read_json
from routelab.study.experts import agreement

SCHEMA = 1


def collect(recipe: Recipe, run: RunDirectory) -> dict[str, Any]:
    """Return every number of a finished run: scores, comparisons with the control, training, expert agreement."""
    base = {spec.task: _scored(run, BASE, None, spec.task) for spec in recipe.evaluate}
    tasks = [
        {"task": name, "metric": summary["metric"], "examples": summary["examples"]} for name, summary in base.items()
    ]
    arms = {arm: _arm(recipe, run, arm) for arm in recipe.arms}
    others = [arm for arm in recipe.arms if arm != recipe.control]
    return {
        "schema": SCHEMA,
        "kind": "training",
        "name": recipe.name,
        "title": recipe.title,
        "note": recipe.note,
        "host": {"name": recipe.host.name, **read_json(run.records(BASE, None) / "host.json")},
        "control": recipe.control,
        "seeds": list(recipe.seeds),
        "headline": {"arm": recipe.headline, "task": recipe.evaluate[0].task},
        "tasks": tasks,
        "base": base,
        "arms": arms,
        "comparisons": [_comparison(recipe, run, arm, task) for arm in others for task in tasks],
        "alignment": _alignment(recipe, run),
        "studies": study_rows(recipe, run),
        "harness": harness_rows(recipe, run),
        "same_batches": _same_batches(arms),
        "commands": commands(recipe, run),
    }


def commands(recipe: Recipe, run: RunDirectory) -> list[list[str]]:
    """Return what each number can be had again with: pairs of a sentence and a command line."""
    arm, seed = next(iter(recipe.arms)), recipe.seeds[0]
    found = [["The whole run, into a new directory", _line("run", run.recipe, "--out", f"{run.path}-again")]]
    for spec in recipe.evaluate:
        options = [*_host_options(recipe), *_task_options(spec)]
        found.append([f"The host on {spec.task}", _line("evaluate", *options)])
        routed = _line("evaluate", *options, "--routing", run.routing(arm, seed))
        found.append([f"One arm and seed on {spec.task}; the others by their folder", routed])
    found += harness_commands(recipe, run)
    found.append(["Tables, figures and this page from results.json", _line("report", run.path)])
    return found


def _line(*words: object) -> str:
    return shlex.join(["routelab", *map(str, words)])


def _host_options(recipe: Recipe) -> list[str]:
    host = recipe.host
    options = ["--host", host.name, *(["--dtype", host.dtype] if host.dtype else [])]
    return [*options, "--trust-remote-code"] if host.trust_remote_code else options


def _task_options(spec: TaskSpec) -> list[str]:
    given = {
        "--limit": spec.limit,
        "--batch-size": spec.batch_size,
        "--max-new-tokens": spec.max_new_tokens,
        "--num-samples": spec.num_samples if spec.num_samples > 1 else None,
        "--temperature": spec.temperature or None,
    }
    words = ["--task", spec.task, *(str(w) for pair in given.items() if pair[1] is not None for w in pair)]
    return words + [word for key, value in spec.options.items() for word in ("--option", f"{key}={value}")]


def _arm(recipe: Recipe, run: RunDirectory, arm: str) -> dict[str, Any]:
    trained = {seed: read_json(run.trained(arm, seed)) for seed in recipe.seeds}
    first = trained[recipe.seeds[0]]
    tasks = {}
    for spec in recipe.evaluate:
        seeds = {str(seed): _scored(run, arm, seed, spec.task) for seed in recipe.seeds}
        mean, sd = mean_sd([summary["value"] for summary in seeds.values()])
        tasks[spec.task] = {"seeds": seeds, "mean": mean, "sd": sd}
    return {
        "methods": first["methods"],
        "new_parameters": first["new_parameters"],
        "trainable_parameters": first["trainable_parameters"],
        "train": {
            str(seed): {key: value for key, value in summary["train"].items() if key != "history"}
            for seed, summary in trained.items()
        },
        "tasks": tasks,
        "agreement": _agreement(recipe, run, arm),
    }


def _scored(run: RunDirectory, arm: str, seed: int | None, task: str) -> dict[str, Any]:
    """Reduce one evaluation's summary to what the report shows. A loss is the mean over examples, as it is compared."""
    full = read_json(run.scored(arm, seed, task))
    length = full.get("length")
    return {
        "metric": full["metric"],
        "value": full["loss_per_example"] if full["metric"] == "loss" else full["accuracy"],
        "examples": full["n"],
        "tokens": length["tokens"]["mean"] if length else None,
        "characters": length["characters"]["mean"] if length else None,
        "truncated": full["truncated"] / (full["n"] * full["arguments"]["num_samples"]) if length else None,
        "seconds": full["seconds"],
    }


def _comparison(recipe: Recipe, run: RunDirectory, arm: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """Compare an arm with the control on the same examples.

    ``low`` and ``high`` decide the verdict; they cover seeds and examples where there are several seeds.
    """
    name = task["task"]
    ours, theirs = (_records(recipe, run, each, name) for each in (arm, recipe.control))
    examples = paired_bootstrap_over_seeds(ours, theirs)
    widest = paired_bootstrap_over_seeds(ours, theirs, resample_seeds=True) if len(ours) > 1 else examples
    differences = [_mean(a) - _mean(b) for a, b in zip(ours, theirs, strict=True)]
    better = (widest.high < 0) if task["metric"] == "loss" else (widest.low > 0)
    worse = (widest.low > 0) if task["metric"] == "loss" else (widest.high < 0)
    return {
        "arm": arm,
        "control": recipe.control,
        "task": name,
        "difference": examples.mean,
        "low": widest.low,
        "high": widest.high,
        "covers": widest.covers,
        "low_examples": examples.low,
        "high_examples": examples.high,
        "sd": mean_sd(differences)[1],
        "examples": examples.n,
        "seeds": {str(seed): value for seed, value in zip(recipe.seeds, differences, strict=True)},
        "verdict": "better" if better else "worse" if worse else "undecided",
    }


def _records(recipe: Recipe, run: RunDirectory, arm: str, task: str) -> list[Scores]:
    return [read_scores(run.scored(arm, seed, task).with_suffix(".jsonl")) for seed in recipe.seeds]


def _agreement(recipe: Recipe, run: RunDirectory, arm: str) -> dict[str, Any]:
    """Share of chosen experts in common with the control of the same seed, per layer, and with the host."""
    host, layers = _choice(run, BASE, None)
    with_host = [agreement(_choice(run, arm, seed)[0], host).mean() for seed in recipe.seeds]
    found: dict[str, Any] = {"layers": {}, "mean": None, "with_host": float(np.mean(with_host))}
    if arm != recipe.control:
        shares = np.mean(
            [agreement(_choice(run, arm, s)[0], _choice(run, recipe.control, s)[0]) for s in recipe.seeds], axis=0
        )
        found["layers"] = {str(layer): float(share) for layer, share in zip(layers, shares, strict=True)}
        found["mean"] = float(shares.mean())
    return found


def _alignment(recipe: Recipe, run: RunDirectory) -> dict[str, Any] | None:
    """What was found in the host and in every arm and seed, where the recipe asks for it."""
    if "alignment" not in recipe.study:
        return None
    arms = {arm: {str(seed): read_json(run.aligned(arm, seed)) for seed in recipe.seeds} for arm in recipe.arms}
    return {"host": read_json(run.aligned(BASE, None)), "arms": arms}


def _choice(run: RunDirectory, arm: str, seed: int | None) -> tuple[np.ndarray, Sequence[int]]:
    with np.load(run.chosen(arm, seed), allow_pickle=False) as stored:
        return stored["experts"], stored["layers"].tolist()


def _same_batches(arms: Mapping[str, Any]) -> bool:
    """Whether all arms of a seed were trained on equal batches in equal order, by the hash of what they saw."""
    by_seed: dict[str, set[str]] = {}
    for arm in arms.values():
        for seed, summary in arm["train"].items():
            by_seed.setdefault(seed, set()).add(summary["data_sha256"])
    return all(len(hashes) == 1 for hashes in by_seed.values())


def _mean(scores: Scores) -> float:
    return sum(scores.values()) / len(scores)
