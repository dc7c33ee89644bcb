"""The stages of a run on working sets: per context length, seed and condition a file; then what happens inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from routelab.evaluate.evaluation import write_records
from routelab.hosts.files import host_files
from routelab.manifest import Manifest, rows_hash
from routelab.recipe.working_sets import Variant, WorkingSetsRecipe
from routelab.report.html import report_run
from routelab.report.page import Page
from routelab.run import load
from routelab.rundir import RunDirectory, write_json
from routelab.working_sets.answers import answer
from routelab.working_sets.inside import converge, look_inside
from routelab.working_sets.questions import Question, ask, rows_of
from routelab.working_sets.results import collect

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Running:
    """What all stages of one run share."""

    recipe: WorkingSetsRecipe
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    manifest: Manifest
    say: Callable[[str], None]


def run_working_sets(
    recipe: WorkingSetsRecipe, run: RunDirectory, *, command: str, say: Callable[[str], None] = lambda text: None
) -> Page:
    """Run every stage that the run directory does not hold yet, write the report, and return its page.

    Raises:
        HostError: the host is not depth-recurrent.
    """
    manifest = Manifest(run, recipe, command)
    for name, digest in host_files(recipe.host.name).items():
        manifest.record("host", name, digest)
    running = Running(recipe, *load(recipe.host), manifest, say)
    for tokens in recipe.questions.contexts:
        questions = ask(recipe.questions, running.tokenizer, tokens)
        rows = rows_of(questions)
        source = f"{recipe.questions.source}, {tokens} tokens"
        manifest.record("data", source, {"rows": len(rows), "sha256": rows_hash(rows)})
        folder = run.path / "records" / f"tokens-{tokens}"
        write_json(folder / "questions.json", {"n": len(questions), "tokens": [each.tokens for each in questions]})
        first = tokens == recipe.questions.contexts[0]
        variants = [*recipe.variants, *(recipe.swept if first else [])]
        _answers(running, folder, tokens, questions, variants)
        _routing(running, folder, tokens, questions[: recipe.measure.routing], variants)
        if first:
            _convergence(running, folder, tokens, questions[: recipe.measure.convergence])
    write_json(run.results, collect(recipe, run))
    manifest.close()
    page, _ = report_run(run.path)
    return page


def _answers(
    running: Running, folder: Path, tokens: int, questions: Sequence[Question], variants: Sequence[Variant]
) -> None:
    recipe = running.recipe
    for seed in recipe.seeds:  # seed by seed: a run that is cut short has whole comparisons
        for variant in variants:
            path = folder / variant.name / f"seed-{seed}.jsonl"
            if path.is_file():
                continue
            running.say(f"{tokens} tokens, seed {seed}: answers under {variant.name}")
            with running.manifest.stage("answers", tokens=tokens, variant=variant.name, seed=seed):
                records = answer(
                    running.model,
                    running.tokenizer,
                    questions,
                    recipe.questions,
                    variant.config,
                    num_steps=recipe.num_steps,
                    seed=seed,
                )
                write_records(path, records)


def _routing(
    running: Running, folder: Path, tokens: int, questions: Sequence[Question], variants: Sequence[Variant]
) -> None:
    recipe, path = running.recipe, folder / "routing.json"
    if not questions or path.is_file():
        return
    running.say(f"{tokens} tokens: where {len(questions)} prompts look")
    with running.manifest.stage("routing", tokens=tokens):
        found = look_inside(
            running.model,
            running.tokenizer,
            questions,
            {variant.name: variant.config for variant in variants},
            recipe.base,
            num_steps=recipe.num_steps,
            seed=recipe.seeds[0],
            supports=folder / "supports.safetensors",
        )
        write_json(path, found)


def _convergence(running: Running, folder: Path, tokens: int, questions: Sequence[Question]) -> None:
    recipe, path = running.recipe, folder / "convergence.json"
    if not questions or path.is_file():
        return
    running.say(f"{tokens} tokens: when {len(questions)} prompts come to rest")
    with running.manifest.stage("convergence", tokens=tokens):
        found = converge(running.model, running.tokenizer, questions, num_steps=recipe.num_steps, seed=recipe.seeds[0])
        write_json(path, found)
