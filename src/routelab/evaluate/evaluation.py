"""From a model and a task to numbers and records."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from routelab import processes
from routelab.errors import EvaluationError
from routelab.evaluate.equivalence import equivalent
from routelab.evaluate.generate import generate_answers
from routelab.evaluate.loglikelihood import choice_log_likelihoods
from routelab.evaluate.loss import text_loss
from routelab.evaluate.prompts import render
from routelab.evaluate.scoring import find_answer
from routelab.evaluate.stats import mean_at_k, pass_at_k
from routelab.evaluate.tasks import Task, task_with
from routelab.stored import json_lines

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Record = dict[str, Any]


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: str | Task,
    *,
    limit: int | None = None,
    batch_size: int = 64,
    max_new_tokens: int | None = None,
    num_samples: int = 1,
    temperature: float = 0.0,
    seed: int = 0,
    records_path: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Record:
    """Evaluate ``model`` on ``task`` and return plain data.

    Processes that have joined (``torchrun``) share the examples out, so all of them must call this; each returns
    the whole result, the first writes.

    Args:
        task: a name known to :func:`get_task`, built with ``limit`` and ``options``, or a task.
        max_new_tokens: default: the task's own.
        seed: of the sampling; the choice of examples is the task's own affair (``options``).
        records_path: where to write one JSON line per example and sample. Every record has ``id`` and ``score``; those
            of a private task have neither ``prompt`` nor ``output``.

    Returns:
        Always ``task``, ``kind``, ``metric`` (``"accuracy"`` or ``"loss"``) and that value under its own name, ``n``,
        ``seconds``, ``data_sha256`` and ``arguments``. Generated answers add ``length`` (mean, median and p99 of
        ``tokens`` and ``characters``), ``truncated`` and ``empty`` counts, ``found`` (which rule found how many
        answers), ``mean_at_k`` and ``pass_at_k`` over the samples; choices add ``accuracy_by_length``; a loss adds
        ``tokens`` and ``loss_per_example``.

    Raises:
        EvaluationError: an unknown task, options with a ready task, or anything generation refuses.
        DataError: the task's data cannot be read.
    """
    if isinstance(task, str):
        task = task_with(task, limit, options or {})
    elif limit is not None or options:
        raise EvaluationError("a ready task has its examples already; give limit and options to get_task")
    began = time.perf_counter()
    if task.kind == "answer":
        settings = {
            "max_new_tokens": max_new_tokens or task.max_new_tokens,
            "num_samples": num_samples,
            "temperature": temperature,
            "seed": seed,
            "batch_size": batch_size,
        }
        records = answer_records(model, tokenizer, task, on_progress=on_progress, **settings)
        numbers = _answers(records, num_samples)
    else:
        settings = {"batch_size": batch_size}
        score = _choices if task.kind == "choice" else _losses
        numbers, records = score(model, tokenizer, task, batch_size)
    result = {
        "task": task.name,
        "kind": task.kind,
        **numbers,
        "n": len(task.examples),
        "seconds": round(time.perf_counter() - began, 3),
        "data_sha256": task.sha256,
        "arguments": {
            **settings,
            "limit": limit,
            "options": dict(task.options),
            "dtype": str(model.dtype).removeprefix("torch."),
        },
    }
    if records_path is not None:
        write_records(records_path, map(without_text, records) if task.private else records)
    return result


def answer_records(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, **generation: Any
) -> list[Record]:
    """Generate an answer to every example of ``task`` and score it.

    Args:
        generation: what :func:`generate_answers` takes beside the prompts, their ids and where they stop.

    Returns:
        The records of :func:`generate_answers` with ``answer``, ``where`` (the rule that found it), ``gold``,
        ``correct``, ``score`` (1 or 0); ``truncated`` is also set where an answer breaks off inside a thought or box.

    Raises:
        EvaluationError: the task does not ask for generated answers, or anything generation refuses.
    """
    if task.kind != "answer":
        raise EvaluationError(f"the task {task.name!r} is a {task.kind} and has no generated answers")

    def answers(examples: Sequence[Record]) -> list[Record]:
        return generate_answers(
            model,
            tokenizer,
            [example["prompt"] for example in examples],
            ids=[example["id"] for example in examples],
            stop=task.stop,
            **generation,
        )

    records = processes.share_out(task.examples, answers, each=generation.get("num_samples", 1))
    gold = {example["id"]: example["gold"] for example in task.examples}
    for record in records:
        found = find_answer(record["output"], task.letters)
        correct = equivalent(gold[record["id"]], found.answer)
        record |= {
            "answer": found.answer,
            "where": found.where,
            "gold": gold[record["id"]],
            "truncated": record["truncated"] or found.truncated,
            "correct": correct,
            "score": float(correct),
        }
    return records


def write_records(path: str | Path, records: Iterable[Record]) -> None:
    """Write records as JSON lines, whole or not at all; only the first of several processes does."""
    if not processes.is_first():
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    os.replace(temporary, path)


def read_scores(path: str | Path) -> dict[str, float]:
    """Return the mean score per example id of a records file, as the functions of :mod:`routelab.evaluate.stats` take
    it.

    Raises:
        EvaluationError: the file is missing or a line is no record.
    """
    scores: dict[str, list[float]] = {}
    try:
        lines = json_lines(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise EvaluationError(f"cannot read the records {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            scores.setdefault(record["id"], []).append(float(record["score"]))
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{path}, line {number}: no record with id and score ({error!r})") from error
    return {name: fmean(values) for name, values in scores.items()}


def _answers(records: Sequence[Record], samples: int) -> Record:
    right = [[record["correct"] for record in records[i : i + samples]] for i in range(0, len(records), samples)]
    return {
        "metric": "accuracy",
        "accuracy": mean_at_k(right),
        "mean_at_k": {str(samples): mean_at_k(right)},
        "pass_at_k": {
            str(k): fmean(pass_at_k(samples, sum(each), k) for each in right)
            for k in sorted({1, samples} | {2**i for i in range(samples.bit_length()) if 2**i <= samples})
        },
        "length": {unit: spread([record[unit] for record in records]) for unit in ("tokens", "characters")},
        "truncated": sum(record["truncated"] for record in records),
        "empty": sum(not record["answer"] for record in records),
        "found": dict(Counter(record["where"] for record in records)),
    }


def without_text(record: Record) -> Record:
    """Return what may be kept of a record of a private task."""
    return {name: value for name, value in record.items() if name not in ("prompt", "output")}


def _choices(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, batch_size: int
) -> tuple[Record, list[Record]]:
    questions = [(example["prompt"], example["choices"]) for example in task.examples]
    # In a chat the reply is the choice and nothing more, so its end counts too.
    ending = "" if isinstance(task.examples[0]["prompt"], str) else tokenizer.eos_token or ""
    scores = processes.share_out(
        questions,
        lambda own: choice_log_likelihoods(model, tokenizer, own, ending=ending, batch_size=batch_size),
    )
    records = [
        {
            "id": example["id"],
            "prompt": render(tokenizer, example["prompt"]),
            "choices": example["choices"],
            "gold": example["gold"],
            "log_likelihoods": list(score.total),
            "choice": score.best,
            "choice_by_length": score.best_by_length,
            "correct": score.best == example["gold"],
            "score": float(score.best == example["gold"]),
        }
        for example, score in zip(task.examples, scores, strict=True)
    ]
    by_length = fmean(record["choice_by_length"] == record["gold"] for record in records)
    accuracy = fmean(record["score"] for record in records)
    return {"metric": "accuracy", "accuracy": accuracy, "accuracy_by_length": by_length}, records


def _losses(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, task: Task, batch_size: int
) -> tuple[Record, list[Record]]:
    losses = processes.share_out(task.examples, lambda own: text_loss(model, tokenizer, own, batch_size=batch_size))
    records = [
        {"id": example["id"], "loss": each.loss, "tokens": each.tokens, "score": each.loss}
        for example, each in zip(task.examples, losses, strict=True)
    ]
    tokens = sum(each.tokens for each in losses)
    numbers = {
        "metric": "loss",
        "loss": sum(each.loss * each.tokens for each in losses) / tokens,
        "loss_per_example": fmean(each.loss for each in losses),
        "tokens": tokens,
    }
    return numbers, records


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, median and 99th percentile of lengths."""
    return {
        "mean": float(np.mean(values)),
        "median": float(np.median(values)),
        "p99": float(np.percentile(values, 99)),
    }
