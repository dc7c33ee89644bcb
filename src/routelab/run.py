"""The stages of a recipe, in order: train all arms and seeds, evaluate, record chosen experts, look further, compare,
report.

What is evaluated is what was saved: every stage starts from the host as loaded and puts the saved routing on it. A
stage whose summary is in the run directory is not run again; a training that was cut off goes on from its checkpoint.

Several processes (``torchrun``) train and evaluate together, tasks of the harness too; the first decides what is
missing, and does the rest.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import routelab
from routelab import processes
from routelab.afterwards import check_afterwards, run_harness, run_studies
from routelab.corpus import training_rows
from routelab.evaluate.evaluation import evaluate
from routelab.held_out import held_out_texts
from routelab.hosts.files import host_files
from routelab.manifest import Manifest, rows_hash
from routelab.recipe import HostSpec, MethodSpec, Recipe, TaskSpec
from routelab.report.html import report_run
from routelab.report.page import Page
from routelab.results import collect
from routelab.rundir import BASE, RunDirectory, write_json
from routelab.study.experts import chosen_experts
from routelab.study.task_experts import task_experts
from routelab.train import EncodedRows, encode_rows, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Rows = Sequence[Mapping[str, Any]]
Say = Callable[[str], None]


def run_recipe(recipe: Recipe, run: RunDirectory, *, command: str, say: Say = lambda text: None) -> Page | None:
    """Run every stage that the run directory does not hold yet, write the report, and return its page, in the first
    process; None in the others."""
    check_afterwards(recipe)
    manifest = Manifest(run, recipe, command)
    for name, digest in host_files(recipe.host.name).items():
        manifest.record("host", name, digest)
    # Seed by seed: a run that is cut short has whole comparisons.
    pairs = [(arm, seed) for seed in recipe.seeds for arm in recipe.arms]
    _measure(recipe, run, BASE, None, manifest, say)
    missing = processes.first_decides(lambda: [pair for pair in pairs if not run.trained(*pair).is_file()])
    rows = _training_rows(recipe, manifest) if missing else []
    encoded: EncodedRows | None = None
    for arm, seed in missing:
        say(f"training {arm}, seed {seed}")
        with manifest.stage("train", arm=arm, seed=seed):
            model, tokenizer = load(recipe.host)
            encoded = encoded or encode_rows(tokenizer, rows, recipe.train)
            _train(recipe, run, model, tokenizer, arm, seed, encoded)
    if processes.is_first():
        run.write_metrics(pairs)
    for arm, seed in pairs:
        _measure(recipe, run, arm, seed, manifest, say)
    run_studies(recipe, run, partial(load_routed, recipe.host), manifest, say)
    run_harness(recipe, run, manifest, say)
    return _conclude(recipe, run, manifest) if processes.is_first() else None


def _conclude(recipe: Recipe, run: RunDirectory, manifest: Manifest) -> Page:
    write_json(run.results, collect(recipe, run))
    manifest.close()
    page, _ = report_run(run.path)
    return page


def load(host: HostSpec) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a recipe's host onto the accelerator, if there is one."""
    dtype = None if host.dtype is None else getattr(torch, host.dtype)
    model, tokenizer = routelab.load_host(host.name, dtype=dtype, trust_remote_code=host.trust_remote_code)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer


def load_routed(host: HostSpec, routing: Path | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a recipe's host and put a saved routing on it; None: the host untouched."""
    model, tokenizer = load(host)
    if routing is not None:
        routelab.load(routing, model)
    return model, tokenizer


def with_seed(spec: MethodSpec, seed: int) -> Any:
    """Return the method's configuration, drawn from the run's seed where the method draws anything at random."""
    names = {field.name for field in dataclasses.fields(spec.config)}
    return dataclasses.replace(spec.config, seed=seed) if "seed" in names else spec.config


def _training_rows(recipe: Recipe, manifest: Manifest) -> Rows:
    rows: list[Mapping[str, Any]] = []
    for spec in recipe.data:
        part = training_rows(spec)
        name = spec.source if spec.split is None else f"{spec.source} ({spec.split})"
        manifest.record("data", name, {"rows": len(part), "sha256": rows_hash(part)})
        rows += part
    return rows


def _train(
    recipe: Recipe,
    run: RunDirectory,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    arm: str,
    seed: int,
    rows: EncodedRows,
) -> None:
    for spec in recipe.arms[arm]:
        routelab.attach(model, with_seed(spec, seed), tokenizer=tokenizer)
    summaries = [method.summary() for method in routelab.attached(model)]
    folder = run.checkpoints(arm, seed)
    result = train(model, tokenizer, rows, recipe.train, seed=seed, output_dir=folder, resume=True)
    routelab.save(model, run.routing(arm, seed))
    summary = {
        "methods": [dataclasses.asdict(each) for each in summaries],
        "new_parameters": sum(each.new_parameters for each in summaries),
        "trainable_parameters": result.trained,
        "train": dataclasses.asdict(result),
    }
    write_json(run.trained(arm, seed), summary)


def _measure(recipe: Recipe, run: RunDirectory, arm: str, seed: int | None, manifest: Manifest, say: Say) -> None:
    """Run the evaluations and the expert recording of one arm and seed, or of the host itself (``seed`` None)."""
    tasks, experts, aligned = processes.first_decides(lambda: _unmeasured(recipe, run, arm, seed))
    if not tasks and not experts and not aligned:
        return
    model, tokenizer = load(recipe.host)
    if seed is None:
        facts = {"family": model.config.model_type, "parameters": sum(p.numel() for p in model.parameters())}
        write_json(run.records(arm, seed) / "host.json", facts)
    else:
        routelab.load(run.routing(arm, seed), model)
    name = "the host" if seed is None else f"{arm}, seed {seed}"
    for spec in tasks:
        say(f"evaluating {name} on {spec.task}")
        with manifest.stage("evaluate", arm=arm, seed=seed, task=spec.task):
            _evaluate(run, model, tokenizer, spec, arm, seed)
    if not processes.is_first():
        return
    if experts:
        with manifest.stage("experts", arm=arm, seed=seed):
            _record_experts(recipe.evaluate[0], run, model, tokenizer, arm, seed)
    if aligned:
        with manifest.stage("alignment", arm=arm, seed=seed):
            texts = {spec.task: held_out_texts(spec, run, tokenizer) for spec in recipe.evaluate}
            write_json(run.aligned(arm, seed), task_experts(model, texts))


def _unmeasured(recipe: Recipe, run: RunDirectory, arm: str, seed: int | None) -> tuple[list[TaskSpec], bool, bool]:
    """Return the evaluations that are missing, and whether the chosen experts and the alignment are."""
    tasks = [spec for spec in recipe.evaluate if not run.scored(arm, seed, spec.task).is_file()]
    aligned = "alignment" in recipe.study and not run.aligned(arm, seed).is_file()
    return tasks, not run.chosen(arm, seed).is_file(), aligned


def _evaluate(
    run: RunDirectory,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    spec: TaskSpec,
    arm: str,
    seed: int | None,
) -> None:
    summary = run.scored(arm, seed, spec.task)
    result = evaluate(
        model,
        tokenizer,
        spec.task,
        limit=spec.limit,
        batch_size=spec.batch_size,
        max_new_tokens=spec.max_new_tokens,
        num_samples=spec.num_samples,
        temperature=spec.temperature,
        records_path=summary.with_suffix(".jsonl"),
        options=spec.options,
    )
    write_json(summary, result)


def _record_experts(
    spec: TaskSpec,
    run: RunDirectory,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    arm: str,
    seed: int | None,
) -> None:
    texts = held_out_texts(spec, run, tokenizer)
    experts, layers = chosen_experts(model, [text.ids for text in texts], [text.prompt for text in texts])
    path = run.chosen(arm, seed)
    temporary = path.with_name(f"{path.stem}.tmp.npz")
    np.savez_compressed(temporary, experts=experts, layers=np.array(layers))
    os.replace(temporary, path)
