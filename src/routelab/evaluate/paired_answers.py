"""Short answers of two conditions on the same questions: scores, differences with intervals, and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from routelab.errors import EvaluationError
from routelab.evaluate.short_answers import exact_match, normalised, token_f1
from routelab.evaluate.stats import Interval, Scores, average_seeds, paired_bootstrap, paired_bootstrap_over_seeds

_SHOWN = 3


@dataclass(frozen=True)
class Answers:
    """One condition run with one seed: what it answered to each question id, and its loss on the gold answers."""

    answers: Mapping[str, str]
    losses: Mapping[str, float] | None = None


def compare_answers(
    runs: Sequence[Answers],
    reference: Sequence[Answers],
    gold: Mapping[str, Sequence[str]],
    *,
    resample_seeds: bool = False,
    resamples: int = 9999,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare a condition with another, such as full attention, over the same questions and seeds, as plain data.

    ``f1``, ``em`` and, where both have losses, ``loss``: each ``{"value", "reference", "difference"}``, the difference
    with its bootstrap interval, means over seeds. ``changed``: answers that differ after normalisation,
    out of ``answers``, those of all ``questions`` and ``seeds``.

    Args:
        runs, reference: one for each seed, in the same order.
        gold: right answers of each question.
        resample_seeds: let the intervals cover seeds too (:func:`routelab.evaluate.stats.paired_bootstrap_over_seeds`).

    Raises:
        EvaluationError: the two have other seeds or questions, or a question has no gold answer.
    """
    if len(runs) != len(reference) or not runs:
        raise EvaluationError(f"paired runs need the same seeds, at least one; got {len(runs)} and {len(reference)}")
    for run in (*runs, *reference):
        unknown = sorted(run.answers.keys() ^ gold.keys())
        if unknown:
            raise EvaluationError(f"answers and gold answers are of other questions: {', '.join(unknown[:_SHOWN])}")
    scored = {
        "f1": [_f1(run, gold) for run in (*runs, *reference)],
        "em": [_em(run, gold) for run in (*runs, *reference)],
    }
    losses = [run.losses for run in (*runs, *reference)]
    if all(one is not None for one in losses):
        scored["loss"] = [one for one in losses if one is not None]
    result: dict[str, Any] = {"questions": len(gold), "seeds": len(runs), "answers": len(gold) * len(runs)}
    for name, scores in scored.items():
        ours, theirs = scores[: len(runs)], scores[len(runs) :]
        interval = paired_bootstrap_over_seeds(
            ours, theirs, resample_seeds=resample_seeds, resamples=resamples, seed=seed
        )
        result[name] = {
            "value": _mean(ours),
            "reference": _mean(theirs),
            "difference": asdict(interval),
        }
    return result | {"changed": sum(changed(a, b) for a, b in zip(runs, reference, strict=True))}


def changed(run: Answers, reference: Answers) -> int:
    """Return how many answers differ after normalisation."""
    return sum(normalised(run.answers[name]) != normalised(reference.answers[name]) for name in reference.answers)


def split_half(first: Scores, second: Scores, *, resamples: int = 9999, seed: int = 0) -> dict[str, Any]:
    """Look for a paired difference again on questions it was not found on (appendix C.5 of arXiv 2609.27373).

    Returns ``first_half``, ``second_half`` and ``pooled``, each the interval of ``first − second`` over those
    questions, in the order of ``first``, and ``replicates``: both halves' intervals exclude 0, on the same side.

    Raises:
        EvaluationError: as :func:`routelab.evaluate.paired_bootstrap`; a half has at least two questions.
    """
    names = list(first)
    middle = len(names) // 2
    parts = {"first_half": names[:middle], "second_half": names[middle:], "pooled": names}
    if first.keys() != second.keys():
        raise EvaluationError("the two were not scored on the same questions")
    found: dict[str, Interval] = {}
    for part, kept in parts.items():
        ours, theirs = ({name: scores[name] for name in kept} for scores in (first, second))
        found[part] = paired_bootstrap(ours, theirs, resamples=resamples, seed=seed)
    signs = [_sign(found[half]) for half in ("first_half", "second_half")]
    return {part: asdict(interval) for part, interval in found.items()} | {"replicates": abs(sum(signs)) == len(signs)}


def _sign(interval: Interval) -> int:
    """1 or -1 where the whole interval lies on that side of 0; 0 where it does not."""
    return int(interval.low > 0) - int(interval.high < 0)


def _f1(run: Answers, gold: Mapping[str, Sequence[str]]) -> Scores:
    return {name: token_f1(run.answers[name], right) for name, right in gold.items()}


def _em(run: Answers, gold: Mapping[str, Sequence[str]]) -> Scores:
    return {name: float(exact_match(run.answers[name], right)) for name, right in gold.items()}


def _mean(scores: Sequence[Scores]) -> float:
    return fmean(average_seeds(scores).values())
