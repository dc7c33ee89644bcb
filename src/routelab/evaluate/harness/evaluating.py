"""The harness from Python: tasks in, results and records out, in the harness's own format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.utils import handle_non_serializable

from routelab.errors import EvaluationError
from routelab.evaluate.harness.adapter import RoutelabLM
from routelab.evaluate.harness.command import named
from routelab.evaluate.harness.finding import require_known, task_manager


def evaluate_tasks(
    model: RoutelabLM,
    tasks: Sequence[str],
    *,
    limit: int | None = None,
    shots: int | None = None,
    chat: bool = False,
    system: str | None = None,
    generation: Mapping[str, Any] | None = None,
    data: Mapping[str, str] | None = None,
    run_code: bool = False,
    seed: int = 1234,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Evaluate a model on tasks of the harness and return its results, without the records; of several processes, the
    first returns them and the others an empty dictionary.

    Args:
        model: ``RoutelabLM("mini-moe", routing=...)``; what it was made of stands in ``config["routelab"]``.
        tasks: names of ours or of the harness's own, groups, or task files.
        limit: the first so many examples of every task.
        shots: worked examples, instead of the task's own number; a task that has 0 keeps it.
        chat, system: ask through the chat template, with this system message.
        generation: changes to the tasks' own, such as ``{"max_gen_toks": 64}``.
        data: other places of our tasks' rows: ``{"gsm8k": "my/gsm8k", "mmlu": "cais/mmlu:all"}``.
        run_code: confirms that tasks may run code that the model wrote.
        seed: of sampling and of the choice of worked examples.
        out: a directory for ``results_<date>.json`` and ``samples_<task>_<date>.jsonl``, one record per example.

    Raises:
        EvaluationError: an unknown task (the nearest is named), or one that runs code without ``run_code``.
        DataError: the rows of one of our tasks cannot be read.
    """
    manager = task_manager(tasks, metadata={"data": dict(data or {})})
    require_known(tasks, manager)
    if not tasks:
        raise EvaluationError("name at least one task of the harness")
    tracker = EvaluationTracker()
    try:
        results = simple_evaluate(
            model=model,
            tasks=list(tasks),
            task_manager=manager,
            limit=limit,
            num_fewshot=shots,
            apply_chat_template=chat,
            fewshot_as_multiturn=chat,
            system_instruction=system,
            gen_kwargs=dict(generation) if generation else None,
            confirm_run_unsafe_code=run_code,
            torch_random_seed=seed,
            fewshot_random_seed=seed,
            evaluation_tracker=tracker,
        )
    except ValueError as error:
        raise named(error) from error
    if results is None:
        return {}
    tracker.general_config_tracker.log_end_time()
    samples = results.pop("samples")
    results = {**results, **asdict(tracker.general_config_tracker), "model_name": results["config"]["routelab"]["host"]}
    plain: dict[str, Any] = json.loads(_json(results, indent=2))
    if out is not None:
        _write(Path(out), plain, samples)
    return plain


def _write(folder: Path, results: Mapping[str, Any], samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write records first, so that results that exist have theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    date = datetime.now().isoformat().replace(":", "-")
    for task, records in samples.items():
        _replace(folder / f"samples_{task}_{date}.jsonl", "".join(f"{_json(record)}\n" for record in records))
    _replace(folder / f"results_{date}.json", _json(results, indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False, indent=indent)
