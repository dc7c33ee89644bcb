"""What a training run does after its own evaluations: studies of the routing, and tasks of the evaluation harness.

Studies look at the first seed of the headline arm against the control's; the harness also measures the host untouched.
What is in the run directory is not done again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from routelab import processes
from routelab.errors import EvaluationError, closest
from routelab.evaluate import tasks as own_tasks
from routelab.manifest import Manifest
from routelab.recipe import Recipe
from routelab.recipe.inside import FEW_SHOT, HarnessSpec, SinksStudy, StudySpec, compares
from routelab.report.studies import study_page
from routelab.routing_studies import Routed, run_study, study_command
from routelab.rundir import BASE, RunDirectory, read_json
from routelab.studies import Notes

Say = Callable[[str], None]


def check_afterwards(recipe: Recipe) -> None:
    """Check by name what would be run, without weights and without rows.

    Raises:
        EvaluationError: an unknown task of a study or of the harness (the nearest is named), an option that a task has
            not, or a task that runs code that a model wrote where the recipe does not permit it.
        MissingPackageError: the harness is not installed.
    """
    known = [*own_tasks.TASKS, FEW_SHOT]
    for spec in recipe.studies:
        for number, task in enumerate(spec.tasks):
            if task not in known:
                raise EvaluationError(f"studies: {spec.study}: no task is called {task!r}{closest(task, known)}")
            if task != FEW_SHOT:
                own_tasks.task_settings(task, spec.options if number == 0 else {})
    if recipe.harness is not None:
        from routelab.evaluate.harness import check_tasks

        check_tasks(recipe.harness.tasks, run_code=recipe.harness.run_code)


def planned(recipe: Recipe) -> list[tuple[str, str]]:
    """Return in words what would be run."""
    found = [(f"study {spec.study}", f"{_reads(spec)}; {_looks_at(spec, recipe)}") for spec in recipe.studies]
    if recipe.harness is not None:
        limit = recipe.harness.limit
        examples = "all examples" if limit is None else f"{limit} example{'s' if limit > 1 else ''} of each"
        who = " and ".join([", ".join(["the host", *_arms(recipe)[1:-1]]), _arms(recipe)[-1]])
        found.append(("harness", f"{', '.join(recipe.harness.tasks)}; {examples}; {who}, seed {recipe.seeds[0]}"))
    return found


def run_studies(
    recipe: Recipe, run: RunDirectory, load: Callable[[Path | None], tuple[Any, Any]], manifest: Manifest, say: Say
) -> None:
    """Make the studies that are missing. Of several processes the first makes them, and the others wait."""
    seed = recipe.seeds[0]
    routed = Routed(recipe.host, run.routing(recipe.headline, seed), run.routing(recipe.control, seed), load)

    def make() -> None:
        for spec in recipe.studies:
            folder = run.study(spec.study)
            if (folder / "report.html").is_file():
                continue
            alone = ", by the first process" if processes.count() > 1 else ""
            say(f"study of {spec.study}: {_looks_at(spec, recipe)}{alone}")
            with manifest.stage("study", study=spec.study):
                notes = Notes(study_command(spec, routed, folder), recipe.host, [seed])
                run_study(spec, routed, folder, notes)

    processes.first_decides(make)


def run_harness(recipe: Recipe, run: RunDirectory, manifest: Manifest, say: Say) -> None:
    """Run the tasks that are missing, each into a folder of its own; several processes share the examples out."""
    spec = recipe.harness
    if spec is None:
        return
    from routelab.evaluate.harness import RoutelabLM, evaluate_tasks

    for arm in _arms(recipe):
        missing = processes.first_decides(partial(_missing, spec, run, arm))
        if not missing:
            continue
        model = RoutelabLM(**_model(recipe, run, arm), batch_size=spec.batch_size)
        for task in missing:
            say(f"{task} of the harness on {'the host' if arm == BASE else f'{arm}, seed {recipe.seeds[0]}'}")
            with manifest.stage("harness", arm=arm, task=task):
                evaluate_tasks(
                    model,
                    [task],
                    limit=spec.limit,
                    chat=spec.chat,
                    generation=spec.generation,
                    data=spec.data,
                    run_code=spec.run_code,
                    out=run.harness(arm, task),
                )


def study_rows(recipe: Recipe, run: RunDirectory) -> list[dict[str, str]]:
    """Return for every study of a run what it found, in a sentence, and where its page is below the run."""
    rows = []
    for spec in recipe.studies:
        folder = run.study(spec.study)
        page = study_page(read_json(folder / "results.json"), read_json(folder / "manifest.json"))
        place = (folder / "report.html").relative_to(run.path).as_posix()
        rows.append({"study": spec.study, "title": page.title, "claim": page.claim, "page": place})
    return rows


def harness_rows(recipe: Recipe, run: RunDirectory) -> list[dict[str, Any]]:
    """Return the scores of the harness: of every task and metric the value and the standard error of every arm."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    tasks = [] if recipe.harness is None else recipe.harness.tasks
    for task, arm in ((task, arm) for task in tasks for arm in _arms(recipe)):
        newest = _newest(run, arm, task)
        scores = {} if newest is None else read_json(newest)["results"]
        for name, values in {task: scores[task]}.items() if task in scores else scores.items():
            for key, value in values.items():
                metric, _, kind = key.partition(",")
                if isinstance(value, int | float) and kind and not metric.endswith("_stderr"):
                    error = values.get(f"{metric}_stderr,{kind}")
                    label = metric if kind == "none" else f"{metric}, {kind}"
                    row = rows.setdefault((name, label), {"task": name, "metric": label, "arms": {}})
                    row["arms"][arm] = [value, error if isinstance(error, int | float) else None]
    return list(rows.values())


def harness_commands(recipe: Recipe, run: RunDirectory) -> list[list[str]]:
    """Return how the harness's scores are had again, and how two arms are compared example by example."""
    spec = recipe.harness
    if spec is None:
        return []
    given = {key: value for key, value in _model(recipe, run, recipe.headline).items() if value}
    words = ["lm-eval", "run", "--model_args", *_pairs(given), "--tasks", ",".join(spec.tasks)]
    words += ["--batch_size", str(spec.batch_size), *([] if spec.limit is None else ["--limit", str(spec.limit)])]
    words += ["--apply_chat_template", "--fewshot_as_multiturn"] if spec.chat else []
    words += ["--gen_kwargs", *_pairs(spec.generation)] if spec.generation else []
    words += ["--metadata", json.dumps({"data": spec.data})] if spec.data else []
    words += ["--confirm_run_unsafe_code"] if spec.run_code else []
    pair = [str(run.harness(arm, spec.tasks[0])) for arm in (recipe.headline, recipe.control)]
    return [
        ["Tasks of the evaluation harness on one arm; the others by their folder", shlex.join(["routelab", *words])],
        [f"{spec.tasks[0]} of two arms, example by example", shlex.join(["routelab", "compare", *pair])],
    ]


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def _arms(recipe: Recipe) -> list[str]:
    """Who the harness measures: the host, the control and the headline arm."""
    return list(dict.fromkeys([BASE, recipe.control, recipe.headline]))


def _model(recipe: Recipe, run: RunDirectory, arm: str) -> dict[str, Any]:
    """The arguments of ``RoutelabLM``, which are those of ``--model_args``, for one arm's first seed, or the host."""
    host = recipe.host
    return {
        "host": host.name,
        "routing": None if arm == BASE else str(run.routing(arm, recipe.seeds[0])),
        "dtype": host.dtype,
        "trust_remote_code": host.trust_remote_code,
    }


def _missing(spec: HarnessSpec, run: RunDirectory, arm: str) -> list[str]:
    return [task for task in spec.tasks if _newest(run, arm, task) is None]


def _newest(run: RunDirectory, arm: str, task: str) -> Path | None:
    """The results of a finished task, which are written last."""
    return max(run.harness(arm, task).glob("results_*.json"), key=lambda path: path.name, default=None)


def _reads(spec: StudySpec) -> str:
    texts = f"{spec.limit} text{'s' if spec.limit > 1 else ''} of {', '.join(spec.tasks)}"
    return f"{texts}, with patches" if isinstance(spec, SinksStudy) and spec.patch else texts


def _looks_at(spec: StudySpec, recipe: Recipe) -> str:
    who = f"{recipe.headline} against {recipe.control}" if compares(spec) else recipe.headline
    both = spec.patch if isinstance(spec, SinksStudy) else compares(spec)
    return f"{who}, seed {recipe.seeds[0]}{', both in memory' if both else ''}"
