"""How sure a difference is, and what several samples are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
from scipy.stats import bootstrap

from routelab.errors import EvaluationError

Scores = Mapping[str, float]

_SHOWN = 5
#: Scores drawn at once: 2 MiB, while models may be in memory. The draws are the same whatever it is.
_DRAWN = 2**18


@dataclass(frozen=True)
class Interval:
    """A mean with a confidence interval.

    Attributes:
        covers: what the interval accounts for: ``"examples"``, ``"examples and seeds"``, or those of one side only.
    """

    mean: float
    low: float
    high: float
    level: float
    n: int
    covers: str

    def __str__(self) -> str:
        return f"{self.mean:+.4g} [{self.low:+.4g}, {self.high:+.4g}]"


def paired_bootstrap(
    first: Scores, second: Scores, *, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval:
    """Return the mean of ``first − second`` over the same examples with its bootstrap interval (BCa, scipy).

    Examples are resampled in pairs, so the difficulty they share cancels. Each argument maps example ids to scores
    (1 or 0 for right or wrong, a loss, a length). BCa: Efron, "Better bootstrap confidence intervals", JASA 1987.

    Raises:
        EvaluationError: the ids differ (some are named), there are fewer than two, or a score is not finite; or
            ``level`` is not between 0 and 1, or ``resamples`` below 1.
    """
    _check(level, resamples)
    differences = _differences(first, second)
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        return Interval(mean, mean, mean, level, len(differences), "examples")
    result = bootstrap(
        (differences,),
        np.mean,
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, _DRAWN // len(differences)),
        confidence_level=level,
        method="BCa",
        rng=np.random.default_rng(seed),
    )
    low, high = (float(end) for end in result.confidence_interval)
    return Interval(mean, low, high, level, len(differences), "examples")


def paired_bootstrap_over_seeds(
    first: Sequence[Scores],
    second: Sequence[Scores],
    *,
    resample_seeds: bool = False,
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Compare two arms trained with the same seeds, in the same order, and scored on the same examples.

    By default scores are averaged over seeds per example and examples are resampled: the interval says how sure the
    difference is *for these trained models* and does not cover what other seeds would have given. With
    ``resample_seeds`` both seeds (in pairs) and examples are drawn again, which covers both (percentile interval of a
    two-way bootstrap: Owen, "The pigeonhole bootstrap", AOAS 2007, conservative); with few seeds, say under five, it
    is rough.

    Raises:
        EvaluationError: as :func:`paired_bootstrap`; also for arms of different numbers of seeds, or one seed to
            resample.
    """
    _check(level, resamples)
    if len(first) != len(second) or not first:
        raise EvaluationError(
            f"the arms have {len(first)} and {len(second)} seeds; a paired comparison needs the same ones"
        )
    if not resample_seeds:
        return paired_bootstrap(
            average_seeds(first), average_seeds(second), level=level, resamples=resamples, seed=seed
        )
    if len(first) < 2:
        raise EvaluationError("one seed says nothing about the spread over seeds; give at least two to resample them")
    average_seeds(first)
    table = np.stack([_differences(a, _in_order(b, first[0])) for a, b in zip(first, second, strict=True)])
    rng = np.random.default_rng(seed)
    seeds, examples = table.shape
    means = np.empty(resamples)
    for i in range(resamples):
        by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds))
        by_example = rng.multinomial(examples, np.full(examples, 1 / examples))
        means[i] = by_seed @ table @ by_example / (seeds * examples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(table.mean()), float(low), float(high), level, examples, "examples and seeds")


def paired_bootstrap_over_own_seeds(
    first: Sequence[Scores], second: Sequence[Scores], *, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval:
    """Compare two arms trained with seeds of their own, scored on the same examples.

    Examples are resampled in pairs, the seeds of each side independently (percentile interval of a two-way bootstrap,
    as :func:`paired_bootstrap_over_seeds`). A side of one seed has none to resample, and ``covers`` says so.

    Raises:
        EvaluationError: as :func:`paired_bootstrap`; also where an arm has no seeds.
    """
    if len(first) == len(second) == 1:
        return paired_bootstrap(first[0], second[0], level=level, resamples=resamples, seed=seed)
    _check(level, resamples)
    mean = float(_differences(average_seeds(first), average_seeds(second)).mean())
    ours, theirs = (np.array([[run[name] for name in first[0]] for run in each]) for each in (first, second))
    rng = np.random.default_rng(seed)
    examples = ours.shape[1]
    means = np.empty(resamples)
    for i in range(resamples):
        a, b = (rng.multinomial(len(each), np.full(len(each), 1 / len(each))) / len(each) for each in (ours, theirs))
        by_example = rng.multinomial(examples, np.full(examples, 1 / examples))
        means[i] = (a @ ours - b @ theirs) @ by_example / examples
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    sides = [name for name, each in (("first", ours), ("second", theirs)) if len(each) > 1]
    covers = "examples and seeds" if len(sides) == 2 else f"examples and seeds of the {sides[0]}"
    return Interval(mean, float(low), float(high), level, examples, covers)


def average_seeds(runs: Sequence[Scores]) -> dict[str, float]:
    """Return the mean score of each example over ``runs``, which must share their examples."""
    if not runs:
        raise EvaluationError("there are no runs to average")
    for run in runs[1:]:
        _same_ids(runs[0], run)
    return {name: fmean(run[name] for run in runs) for name in runs[0]}


def mean_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Return mean and sample standard deviation (over n − 1); None for the latter where there is one value only.

    Raises:
        EvaluationError: there are no values, or one is not finite.
    """
    if not values:
        raise EvaluationError("there are no values to average")
    bad = [f"{value} (number {i})" for i, value in enumerate(values, start=1) if not math.isfinite(value)]
    if bad:
        raise EvaluationError(f"values to average are not finite: {', '.join(bad[:_SHOWN])} of {len(values)}")
    return fmean(values), stdev(values) if len(values) > 1 else None


def mean_at_k(correct: Sequence[Sequence[bool]]) -> float:
    """Return mean@k: the share of right samples per example, averaged over examples."""
    if not correct or not all(correct):
        raise EvaluationError("mean@k needs at least one sample of every example")
    return fmean(fmean(map(float, samples)) for samples in correct)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased pass@k, ``1 − C(n − c, k) / C(n, k)``: that one of k draws from the n samples is right.

    As the stable product ``1 − Π_{i=n−c+1}^{n} (1 − k/i)``. Source: Chen et al., "Evaluating Large Language Models
    Trained on Code" (arXiv 2107.03374), equation 1.

    Raises:
        EvaluationError: unless ``0 ≤ correct ≤ samples`` and ``1 ≤ k ≤ samples``.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise EvaluationError(f"pass@{k} is undefined for {correct} right of {samples} samples")
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))


def _check(level: float, resamples: int) -> None:
    if not 0 < level < 1:
        raise EvaluationError(f"the level of an interval lies between 0 and 1, such as 0.95; got {level}")
    if resamples < 1:
        raise EvaluationError(f"a bootstrap needs at least one resample, got {resamples}")


def _differences(first: Scores, second: Scores) -> np.ndarray:
    _same_ids(first, second)
    if len(first) < 2:
        raise EvaluationError(f"a bootstrap needs at least two examples, got {len(first)}")
    values = np.array([[first[name], second[name]] for name in first], dtype=np.float64)
    if not np.isfinite(values).all():
        bad = [name for name, pair in zip(first, values, strict=True) if not np.isfinite(pair).all()]
        raise EvaluationError(f"scores of {_named(bad)} are not finite")
    return np.asarray(values[:, 0] - values[:, 1])


def _in_order(scores: Scores, like: Scores) -> dict[str, float]:
    _same_ids(scores, like)
    return {name: scores[name] for name in like}


def _same_ids(first: Scores, second: Scores) -> None:
    only_first, only_second = sorted(first.keys() - second.keys()), sorted(second.keys() - first.keys())
    if only_first or only_second:
        raise EvaluationError(
            f"two runs were not scored on the same examples: {_named(only_first)} only in the first, "
            f"{_named(only_second)} only in the second"
        )


def _named(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
