from __future__ import annotations

import math
import tracemalloc
from itertools import combinations
from math import comb
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.errors import EvaluationError
from routelab.evaluate import stats
from routelab.evaluate.stats import (
    average_seeds,
    mean_at_k,
    mean_sd,
    paired_bootstrap,
    paired_bootstrap_over_seeds,
    pass_at_k,
)


def _scores(seed: int, n: int = 200, shift: float = 0.0) -> dict[str, float]:
    hard = np.random.default_rng(7).normal(size=n)
    noise = np.random.default_rng(seed).normal(scale=0.1, size=n)
    return {f"q{i}": float(hard[i] + noise[i] + shift) for i in range(n)}


def test_pairing_cancels_what_examples_share() -> None:
    first, second = _scores(1, shift=0.1), _scores(2)
    interval = paired_bootstrap(first, second)
    differences = [first[name] - second[name] for name in first]
    assert interval.mean == pytest.approx(fmean(differences))
    # The normal approximation of the mean of differences; unpaired, the interval would be ten times as wide.
    half = 1.96 * np.std(differences, ddof=1) / np.sqrt(200)
    assert interval.low == pytest.approx(interval.mean - half, abs=half / 5)
    assert interval.high == pytest.approx(interval.mean + half, abs=half / 5)
    assert interval.low > 0


def test_order_of_ids_does_not_matter_and_swapping_flips_the_sign() -> None:
    first, second = _scores(1), _scores(2)
    shuffled = dict(reversed(second.items()))
    assert paired_bootstrap(first, second) == paired_bootstrap(first, shuffled)
    assert paired_bootstrap(second, first).mean == pytest.approx(-paired_bootstrap(first, second).mean)


def test_equal_runs_have_an_interval_without_width() -> None:
    interval = paired_bootstrap(_scores(1), _scores(1))
    assert (interval.mean, interval.low, interval.high) == (0, 0, 0)


def test_coverage_is_about_the_level() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        a = {str(i): float(x) for i, x in enumerate(rng.random(60) < 0.7)}
        b = {str(i): float(x) for i, x in enumerate(rng.random(60) < 0.5)}
        interval = paired_bootstrap(a, b, resamples=500)
        hits += interval.low <= 0.2 <= interval.high
    assert 88 <= hits <= 100


def test_different_examples_are_refused_by_name() -> None:
    first = _scores(1)
    second = {**first, "extra": 1.0}
    del second["q3"]
    with pytest.raises(EvaluationError, match=r"'q3' only in the first, 'extra' only in the second"):
        paired_bootstrap(first, second)


def test_bad_scores_are_refused() -> None:
    with pytest.raises(EvaluationError, match=r"'q1'.* not finite"):
        paired_bootstrap({"q0": 1.0, "q1": float("nan")}, {"q0": 1.0, "q1": 0.0})
    with pytest.raises(EvaluationError, match="at least two examples"):
        paired_bootstrap({"q0": 1.0}, {"q0": 0.0})


def test_seeds_are_averaged_per_example() -> None:
    first, second = [_scores(1, shift=0.3), _scores(2, shift=0.1)], [_scores(3), _scores(4)]
    expected = paired_bootstrap(average_seeds(first), average_seeds(second))
    assert paired_bootstrap_over_seeds(first, second) == expected
    assert expected.covers == "examples"


def test_resampling_seeds_covers_their_spread() -> None:
    arms = [_scores(i, shift=shift) for i, shift in enumerate((0.5, -0.3, 0.2, -0.2))], [_scores(9)] * 4
    fixed = paired_bootstrap_over_seeds(*arms)
    both = paired_bootstrap_over_seeds(*arms, resample_seeds=True, resamples=2000)
    assert both.mean == pytest.approx(fixed.mean)
    assert both.high - both.low > 5 * (fixed.high - fixed.low)
    assert both.low < 0 < both.high
    assert both.covers == "examples and seeds"


def test_arms_need_the_same_seeds() -> None:
    with pytest.raises(EvaluationError, match="2 and 1 seeds"):
        paired_bootstrap_over_seeds([_scores(1), _scores(2)], [_scores(1)])
    with pytest.raises(EvaluationError, match="at least two"):
        paired_bootstrap_over_seeds([_scores(1)], [_scores(2)], resample_seeds=True)


def test_mean_and_sample_deviation() -> None:
    assert mean_sd([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_sd([4.0]) == (4.0, None)
    with pytest.raises(EvaluationError):
        mean_sd([])
    for bad in (float("nan"), float("inf")):
        with pytest.raises(EvaluationError, match=rf"not finite: {bad} \(number 2\) of 3"):
            mean_sd([1.0, bad, 2.0])


@pytest.mark.parametrize("resample_seeds", [False, True])
def test_impossible_intervals_are_refused(resample_seeds: bool) -> None:
    arms = [_scores(1), _scores(2)], [_scores(3), _scores(4)]
    for level in (0.0, 1.0, 95.0, -0.5, float("nan")):
        with pytest.raises(EvaluationError, match="between 0 and 1"):
            paired_bootstrap_over_seeds(*arms, resample_seeds=resample_seeds, level=level)
        with pytest.raises(EvaluationError, match="between 0 and 1"):
            paired_bootstrap(_scores(1), _scores(1), level=level)
    with pytest.raises(EvaluationError, match="at least one resample, got 0"):
        paired_bootstrap_over_seeds(*arms, resample_seeds=resample_seeds, resamples=0)


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(samples: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    draws = list(combinations([True] * correct + [False] * (samples - correct), k))
    assert pass_at_k(samples, correct, k) == pytest.approx(fmean(any(draw) for draw in draws))


def test_pass_at_k_is_stable() -> None:
    assert pass_at_k(100_000, 3, 1000) == pytest.approx(1 - comb(99_997, 1000) / comb(100_000, 1000), rel=1e-9)
    for arguments in ((4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)):
        with pytest.raises(EvaluationError):
            pass_at_k(*arguments)


def test_mean_at_k() -> None:
    assert mean_at_k([[True, False], [True, True]]) == 0.75
    with pytest.raises(EvaluationError):
        mean_at_k([[True], []])


def test_an_interval_holds_few_draws_at_once_and_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {str(i): math.sin(i) for i in range(1319)}
    second = dict.fromkeys(first, 0.25)
    tracemalloc.start()
    found = paired_bootstrap(first, second, seed=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 2**20
    monkeypatch.setattr(stats, "_DRAWN", 2**22)
    assert paired_bootstrap(first, second, seed=3) == found
