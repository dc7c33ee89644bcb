"""How far two modes are apart, and how much thinking leaks into the one that should not think.

The measures of arXiv 2604.27201 (section 4.1) and some beside them, from records of generated answers; nothing here
knows how a model came by its modes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from routelab.data.reflection import ReflectiveWords
from routelab.errors import EvaluationError, closest
from routelab.evaluate.evaluation import Record, answer_records, spread, without_text
from routelab.evaluate.extract import spoken_part
from routelab.evaluate.stats import paired_bootstrap_over_seeds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from routelab.evaluate.tasks import Task

WORDS: Mapping[str, str] = MappingProxyType({"no_think": "/no_think", "think": "/think"})
RAMBLE = 1000

_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
_EQUATION = re.compile(r"[\d)}]\s*=\s*[-−$€£¥({\s]*\d")

#: What can be compared example by example, as numbers from a measured record.
MEASURES: Mapping[str, Callable[[Record], float]] = MappingProxyType(
    {
        "accuracy": lambda record: record["score"],
        "tokens": lambda record: record["tokens"],
        "characters": lambda record: record["characters"],
        "reflective": lambda record: record["reflective"],
        "reflective_share": lambda record: record["reflective"] > 0,
        "thought_share": lambda record: record["thinks"],
        "working_share": lambda record: record["works"],
        "ramble_rate": lambda record: record["rambles"],
        "truncated": lambda record: record["truncated"],
        "empty": lambda record: not record["answer"],
    }
)


def with_control_word(task: Task, word: str) -> Task:
    """Return ``task`` with ``word`` at the end of every last user turn.

    Raises:
        EvaluationError: prompts that are plain text, or a chat that does not end with the user.
    """
    examples = []
    for example in task.examples:
        prompt = example.get("prompt")
        if not isinstance(prompt, Sequence) or isinstance(prompt, str) or prompt[-1]["role"] != "user":
            raise EvaluationError(
                f"the task {task.name!r}, {example['id']!r}: a control word follows a question of the user in a chat, "
                "not a text; gsm8k takes chat=True"
            )
        last = {**prompt[-1], "content": f"{prompt[-1]['content']} {word}"}
        examples.append({**example, "prompt": [*prompt[:-1], last]})
    return replace(task, examples=tuple(examples))


def measure_answers(
    records: Sequence[Record], words: ReflectiveWords | None = None, *, ramble: int = RAMBLE
) -> list[Record]:
    """Return ``records`` with what leakage is measured by.

    Adds ``reflective`` (reflective words in the whole output, thoughts included), ``thinks`` (the output holds a
    thought that is not empty), ``works`` (what it says outside of thoughts has an equation with a number on its right),
    and ``rambles`` (more than ``ramble`` characters). Records that have been measured and have lost their text (private
    tasks) stay as they are.

    Raises:
        EvaluationError: there are no records, or one is no generated and scored answer.
    """
    if not records:
        raise EvaluationError("there are no answers to measure")
    words = words or ReflectiveWords()
    measured = []
    for number, record in enumerate(records):
        missing = {"id", "score", "tokens", "characters", "truncated", "answer"} - record.keys()
        if "output" not in record and not {"reflective", "thinks", "works", "rambles"} <= record.keys():
            missing.add("output")
        if missing:
            raise EvaluationError(f"record {number} is no generated answer: it lacks {', '.join(sorted(missing))}")
        measured.append(record if "output" not in record else record | _marks(record, words, ramble))
    return measured


def summarise_mode(records: Sequence[Record]) -> Record:
    """Return the measures of one mode, over all measured records (samples of an example count as answers).

    ``n``; ``accuracy``; ``tokens`` and ``characters`` (mean, median, p99); ``reflective`` words per answer; the shares
    ``reflective_share`` (any reflective word), ``thought_share``, ``working_share``, ``ramble_rate``; the counts
    ``truncated`` and ``empty``.
    """
    shares = ("accuracy", "reflective", "reflective_share", "thought_share", "working_share", "ramble_rate")
    return {
        "n": len(records),
        **{name: fmean(float(MEASURES[name](record)) for record in records) for name in shares},
        **{name: sum(bool(MEASURES[name](record)) for record in records) for name in ("truncated", "empty")},
        **{unit: spread([record[unit] for record in records]) for unit in ("tokens", "characters")},
    }


def compare(
    first: Sequence[Sequence[Record]],
    second: Sequence[Sequence[Record]],
    measures: Sequence[str] = tuple(MEASURES),
    *,
    resample_seeds: bool = False,
    resamples: int = 9999,
    seed: int = 0,
) -> dict[str, Record]:
    """Return, per measure, the mean of ``first − second`` over the same examples with its paired bootstrap interval.

    Two models in one mode, or two modes of one model. Each argument holds measured records of one run per seed, in the
    same order of seeds. Samples of an example are averaged.

    Raises:
        EvaluationError: an unknown measure, or anything :func:`paired_bootstrap_over_seeds` refuses.
    """
    for measure in measures:
        if measure not in MEASURES:
            raise EvaluationError(f"no measure of leakage is called {measure!r}{closest(measure, MEASURES)}")
    return {
        measure: asdict(
            paired_bootstrap_over_seeds(
                [scores_of(run, measure) for run in first],
                [scores_of(run, measure) for run in second],
                resample_seeds=resample_seeds,
                resamples=resamples,
                seed=seed,
            )
        )
        for measure in measures
    }


def mode_gap(think: Sequence[Record], no_think: Sequence[Record], *, resamples: int = 9999, seed: int = 0) -> Record:
    """Return how far two modes of one model are apart.

    ``difference`` (think − no_think) by measure, with intervals as in :func:`compare`, and ``length_ratio`` (mean
    tokens of think over those of no_think; None where no_think says nothing).
    """
    lengths = [fmean(record["tokens"] for record in records) for records in (think, no_think)]
    return {
        "difference": compare([think], [no_think], resamples=resamples, seed=seed),
        "length_ratio": lengths[0] / lengths[1] if lengths[1] else None,
    }


def scores_of(records: Sequence[Record], measure: str) -> dict[str, float]:
    """Return the mean of a measure per example id."""
    values: dict[str, list[float]] = {}
    for record in records:
        values.setdefault(record["id"], []).append(float(MEASURES[measure](record)))
    return {name: fmean(each) for name, each in values.items()}


def measure_leakage(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    *,
    modes: Mapping[str, str] = WORDS,
    reflective: ReflectiveWords | None = None,
    ramble: int = RAMBLE,
    **generation: Any,
) -> tuple[Record, dict[str, list[Record]]]:
    """Answer ``task`` once in each of ``modes`` (name → control word) and measure.

    Args:
        generation: what ``generate_answers`` takes; ``max_new_tokens`` is the task's where it is not given.

    Returns:
        ``({"task", "words", "modes": {mode: summary}, "gap"}, {mode: measured records})``. ``gap`` is :func:`mode_gap`
        where the modes are think and no_think and there are two examples, else None. The records of a private task
        have no text.
    """
    generation = {"max_new_tokens": task.max_new_tokens} | generation
    reflective = reflective or ReflectiveWords()
    records = {
        mode: measure_answers(
            answer_records(model, tokenizer, with_control_word(task, word), **generation), reflective, ramble=ramble
        )
        for mode, word in modes.items()
    }
    paired = WORDS.keys() <= records.keys() and len(task.examples) > 1
    summary = {
        "task": task.name,
        "words": list(reflective.words),
        "modes": {mode: summarise_mode(each) for mode, each in records.items()},
        "gap": mode_gap(records["think"], records["no_think"]) if paired else None,
    }
    if task.private:
        records = {mode: list(map(without_text, each)) for mode, each in records.items()}
    return summary, records


def _marks(record: Record, words: ReflectiveWords, ramble: int) -> Record:
    output = str(record["output"])
    return {
        "reflective": words.count(output),
        "thinks": _has_thought(output),
        "works": bool(_EQUATION.search(spoken_part(output) or "")),
        "rambles": record["characters"] > ramble,
    }


def _has_thought(output: str) -> bool:
    """Whether something stands inside think tags; the opening one may be missing, or the closing one."""
    before, closed, _ = output.partition("</think>")
    headless = [before] if closed and "<think>" not in before else []
    return any(thought.strip() for thought in [*headless, *_THOUGHT.findall(output)])
