"""The stages of a run on hybrid thinking: corpus, probe, then every seed and arm trained and measured in both modes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import routelab
from routelab import processes
from routelab.corpus import GENERATORS, drawn, generated_rows
from routelab.data.hybrid import HybridCorpus, bare_answer, build_hybrid, condense, read_targets, two_phases
from routelab.data.sources import load_rows
from routelab.evaluate.evaluation import write_records
from routelab.evaluate.leakage import measure_leakage
from routelab.evaluate.scoring import target_is_right
from routelab.evaluate.tasks import task_with
from routelab.hosts.files import host_files
from routelab.manifest import Manifest, rows_hash
from routelab.methods.full.config import FullConfig
from routelab.methods.pathlock.config import MODES, PathLockConfig
from routelab.methods.pathlock.export import path_lock
from routelab.mode_results import collect_modes
from routelab.recipe.modes import HybridSpec, ModesRecipe
from routelab.report.html import report_run
from routelab.report.page import Page
from routelab.run import load
from routelab.rundir import BASE, RunDirectory, write_json
from routelab.study.interference import probe_interference
from routelab.train import TrainConfig, encode_rows, train

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Rows = Sequence[Mapping[str, Any]]
Say = Callable[[str], None]


def run_modes(recipe: ModesRecipe, run: RunDirectory, *, command: str, say: Say = lambda text: None) -> Page | None:
    """Run every stage that the run directory does not hold yet, write the report, and return its page, in the first
    process; None in the others."""
    manifest = Manifest(run, recipe, command)
    for name, digest in host_files(recipe.host.name).items():
        manifest.record("host", name, digest)
    rows = _corpora(recipe, run, manifest)
    _probe(recipe, run, rows[recipe.control], manifest, say)
    _measure(recipe, run, BASE, None, manifest, say)
    for seed in recipe.seeds:  # seed by seed: a run that is cut short has whole comparisons
        for arm in sorted(recipe.arms, key=lambda each: each == "average"):
            if _missing(run.trained(arm, seed)):
                say(f"training {arm}, seed {seed}")
                with manifest.stage("train", arm=arm, seed=seed):
                    write_json(run.trained(arm, seed), _train(recipe, run, arm, seed, rows[arm]))
            _measure(recipe, run, arm, seed, manifest, say)
    return _conclude(recipe, run, manifest) if processes.is_first() else None


def _conclude(recipe: ModesRecipe, run: RunDirectory, manifest: Manifest) -> Page:
    write_json(run.results, collect_modes(recipe, run))
    manifest.close()
    page, _ = report_run(run.path)
    return page


def _missing(path: Path) -> bool:
    """Whether a stage has not left its summary yet; the same for all processes of a run."""
    return processes.first_decides(lambda: not path.is_file())


def _corpora(recipe: ModesRecipe, run: RunDirectory, manifest: Manifest) -> dict[str, Rows]:
    """Return the training rows of every arm; arms of the same source share them. Each source leaves its report."""
    built: dict[str, Rows] = {}
    reports: dict[str, Any] = {}
    found = {}
    for arm in recipe.arms:
        spec = recipe.data_of(arm)
        name = spec.source if spec == recipe.data else f"{spec.source} of {arm}"
        if name not in built:
            corpus = hybrid_corpus(recipe, load(recipe.host_of(arm))[1], spec)
            built[name], reports[name] = corpus.splits["train"], corpus.report
            manifest.record("data", name, {"rows": len(built[name]), "sha256": rows_hash(built[name])})
        found[arm] = built[name]
    write_json(run.path / "corpus.json", reports)
    return found


def hybrid_corpus(
    recipe: ModesRecipe, tokenizer: PreTrainedTokenizerBase | None, spec: HybridSpec | None = None
) -> HybridCorpus:
    """Build the corpus of a recipe or of one of its sources, answers checked; lengths in tokens, or in characters
    without a tokenizer."""
    spec = recipe.data if spec is None else spec
    targets = read_targets(_source_rows(spec), spec.format, **spec.reader)
    if spec.condense:
        targets = condense(targets, bare_answer)
    if tokenizer is None:
        return build_hybrid(targets, recipe.hybrid, check=target_is_right)

    def tokens(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    return build_hybrid(targets, recipe.hybrid, check=target_is_right, measure=tokens, unit="tokens")


def _source_rows(spec: HybridSpec) -> Rows:
    if spec.source in GENERATORS:
        return generated_rows(spec.source, "train", spec.limit, spec.options)
    rows = load_rows(spec.source)
    return rows if spec.limit is None else drawn(rows, spec.limit, spec.seed)


def _probe(recipe: ModesRecipe, run: RunDirectory, rows: Rows, manifest: Manifest, say: Say) -> None:
    path = run.path / "interference.json"
    if not recipe.probe or not processes.is_first() or path.is_file():
        return
    say("comparing the gradients of both modes before training")
    model, tokenizer = load(recipe.host)
    examples = {}
    for mode in MODES:
        own = [row for row in rows if row["mode"] == mode][: recipe.probe]
        examples[mode] = encode_rows(tokenizer, own, recipe.train).documents
    with manifest.stage("probe"):
        write_json(path, dataclasses.asdict(probe_interference(model, examples)))


def _train(recipe: ModesRecipe, run: RunDirectory, arm: str, seed: int, rows: Rows) -> dict[str, Any]:
    spec = recipe.trains(arm)
    model, tokenizer = _start(recipe, run, arm, seed)
    if spec.method == "average":
        return _average(recipe, run, arm, seed, model)
    config = PathLockConfig() if spec.method == "pathlock" else FullConfig()
    routelab.attach(model, config, tokenizer=tokenizer)
    own = [row for row in rows if spec.mode in (None, row["mode"])]
    phases = [own] if spec.phases == 1 else list(two_phases(own, seed=recipe.hybrid.seed))
    results = []
    budgets = _budgets(recipe.train, [len(phase) for phase in phases])
    for number, (phase, settings) in enumerate(zip(phases, budgets, strict=True), start=1):
        encoded = encode_rows(tokenizer, phase, settings)
        folder = run.checkpoints(arm, seed) / f"phase-{number}"
        results.append(train(model, tokenizer, encoded, settings, seed=seed, output_dir=folder, resume=True))
    (summary,) = (method.summary() for method in routelab.attached(model))
    routelab.save(model, run.routing(arm, seed))
    return {
        "method": dataclasses.asdict(summary),
        "phases": [{k: v for k, v in dataclasses.asdict(each).items() if k != "history"} for each in results],
        "history": [{"phase": i, **line} for i, each in enumerate(results, start=1) for line in each.history],
    }


def _start(
    recipe: ModesRecipe, run: RunDirectory, arm: str, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return what an arm starts from: its host, or the weights that the arm before it has trained."""
    model, tokenizer = load(recipe.host_of(arm))
    before = recipe.variant(arm).after
    if before is not None:
        trained, _ = _start(recipe, run, before, seed)
        routelab.load(run.routing(before, seed), trained)
        model.load_state_dict(trained.state_dict())
    return model, tokenizer


def _budgets(config: TrainConfig, rows: Sequence[int]) -> list[TrainConfig]:
    """Return the budget of every phase by its number of rows; together they have the whole."""
    if config.epochs is not None:
        return [config] * len(rows)
    key = "steps" if config.steps is not None else "tokens"
    whole, spent, budgets = int(getattr(config, key)), 0, []
    for number in range(1, len(rows) + 1):
        until = max(spent + 1, round(whole * sum(rows[:number]) / sum(rows)))
        budget: Any = {key: until - spent}
        budgets.append(dataclasses.replace(config, **budget))
        spent = until
    return budgets


def _average(recipe: ModesRecipe, run: RunDirectory, arm: str, seed: int, model: PreTrainedModel) -> dict[str, Any]:
    """Save the mean of the two specialists' weights, which is what the paper's weight average is."""
    routelab.load(run.routing("think-only", seed), model)
    other, _ = load(recipe.host)
    routelab.load(run.routing("no_think-only", seed), other)
    with torch.no_grad():
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            mine.lerp_(its, 0.5)
    (summary,) = (method.summary() for method in routelab.attached(model))
    routelab.save(model, run.routing(arm, seed))
    return {"method": dataclasses.asdict(summary), "phases": [], "history": []}


def _measure(recipe: ModesRecipe, run: RunDirectory, arm: str, seed: int | None, manifest: Manifest, say: Say) -> None:
    folder = run.records(arm, seed)
    if not _missing(folder / "leakage.json"):
        return
    say(f"measuring {'the host' if seed is None else f'{arm}, seed {seed}'} in both modes")
    model, tokenizer = load(recipe.host) if seed is None else _start(recipe, run, arm, seed)
    if seed is None:
        facts = {"family": model.config.model_type, "parameters": sum(p.numel() for p in model.parameters())}
        write_json(folder / "host.json", facts)
    else:
        routelab.load(run.routing(arm, seed), model)
    with manifest.stage("measure", arm=arm, seed=seed):
        found = {"as told": _leakage(recipe, run, model, tokenizer, arm, seed, "")}
        if recipe.crossed and seed is not None and recipe.trains(arm).method == "pathlock":
            for mode, name in enumerate(MODES):
                plain, _ = load(recipe.host_of(arm))
                plain.load_state_dict(path_lock(model).plain_state(mode))
                found[f"{name} expert"] = _leakage(recipe, run, plain, tokenizer, arm, seed, f"{name}-expert-")
        write_json(folder / "leakage.json", found)


def _leakage(
    recipe: ModesRecipe,
    run: RunDirectory,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    arm: str,
    seed: int | None,
    prefix: str,
) -> dict[str, Any]:
    spec = recipe.evaluate
    generation: dict[str, Any] = {} if spec.max_new_tokens is None else {"max_new_tokens": spec.max_new_tokens}
    summary, records = measure_leakage(
        model,
        tokenizer,
        task_with(spec.task, spec.limit, spec.options),
        batch_size=spec.batch_size,
        num_samples=spec.num_samples,
        temperature=spec.temperature,
        **generation,
    )
    for mode, each in records.items():
        write_records(run.records(arm, seed) / f"{prefix}{mode}.jsonl", each)
    return summary
