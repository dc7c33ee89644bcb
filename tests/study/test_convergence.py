"""Convergence times, on trajectories made by hand."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict

import pytest

from routelab.errors import EvaluationError
from routelab.study.convergence import (
    DEFAULT,
    SETTINGS,
    ConvergenceTimes,
    Distances,
    Strictness,
    convergence_times,
    first_run,
    sensitivity,
    summarise_times,
)

#: Eight steps: the median of the first four distances is 1, so 0.05 of it is 0.05.
FALLING = [2.0, 1.5, 0.5, 0.1, 0.05, 0.04, 0.01]


def distances(jaccard: list[float], attention: list[float], state: list[float], output: list[float]) -> Distances:
    return Distances([[x] for x in jaccard], [[x] for x in attention], state, [[x] for x in output])


def test_a_time_is_the_step_that_the_first_of_three_transitions_arrives_at() -> None:
    found = convergence_times(
        distances([0.5, 0.9, 0.95, 0.89, 0.90, 0.93, 1.0], FALLING, [*FALLING[:5], 0.06, 0.01], [1.0] * 7)
    )
    # Supports: 0.9 and 0.95 are two in a row only; the run begins with the transition 5 -> 6.
    assert found == ConvergenceTimes(support=6, attention=6, state=9, output=9, num_steps=8)
    assert found.gap == 3


def test_the_scale_is_the_median_of_the_first_four_finite_transitions() -> None:
    curve = [math.inf, 8.0, math.nan, 4.0, 2.0, 1.0, 0.15, 0.15, 0.15]
    found = convergence_times(distances([1.0] * 9, curve, curve, [0.0] * 9))
    assert found.attention == found.state == 8  # the median is 3, of 8, 4, 2 and 1
    assert found.support == found.output == 2  # what never moves rests from the first transition on


def test_blocks_are_averaged_before_the_criterion() -> None:
    one = Distances([[1.0, 0.7]] * 3, [[1.0, 3.0]] * 3, [1.0] * 3, [[0.0, 0.0]] * 3)
    assert one.curve("support") == pytest.approx([0.85] * 3)
    assert one.curve("attention") == [2.0] * 3
    assert convergence_times(one).support == 5
    assert convergence_times(one, SETTINGS["L"]).support == 2


def test_settings_halve_what_they_permit() -> None:
    assert Strictness(0.90, 0.05, 0.05) == DEFAULT
    matched = [SETTINGS[name] for name in ("VL", "L", "D", "S", "VS")]
    for loose, strict in itertools.pairwise(matched):
        assert 1 - strict.jaccard == pytest.approx((1 - loose.jaccard) / 2)
        assert strict.fraction == loose.fraction / 2
        assert strict.state_fraction == loose.state_fraction / 2
    asymmetric = SETTINGS["asymmetric"]
    assert (asymmetric.jaccard, asymmetric.fraction) == (SETTINGS["VS"].jaccard, SETTINGS["VS"].fraction)
    assert asymmetric.state_fraction == SETTINGS["L"].state_fraction


def test_stricter_settings_never_rest_earlier() -> None:
    one = distances([0.5, 0.7, 0.85, 0.92, 0.96, 0.98, 0.99], FALLING, FALLING, FALLING)
    times = [convergence_times(one, SETTINGS[name]) for name in ("VL", "L", "D", "S", "VS")]
    for name in ("support", "attention", "state", "output"):
        found = [getattr(one, name) for one in times]
        assert found == sorted(found)
        assert found[0] < found[-1]


def test_first_run() -> None:
    assert first_run([True, True, False, True, True, True]) == 3
    assert first_run([True, True]) == 2
    assert first_run([]) == 0


def test_a_summary_counts_and_survives_json() -> None:
    times = [ConvergenceTimes(2, 3, 5, 6, 8), ConvergenceTimes(4, 5, 9, 4, 8)]
    found = summarise_times(times)
    assert found["gap"] == 0.5
    assert found["positive"] == 1
    assert found["n"] == 2
    assert found["state"] == {"mean": 7.0, "censored": 1, "converged": [0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5]}
    assert json.loads(json.dumps(found)) == found
    assert json.loads(json.dumps(asdict(times[0])))
    assert set(sensitivity([distances([1.0] * 7, FALLING, FALLING, FALLING)])) == set(SETTINGS)


def test_no_examples_or_several_depths_are_refused() -> None:
    with pytest.raises(EvaluationError, match="one T; got \\[\\]"):
        summarise_times([])
    with pytest.raises(EvaluationError, match="\\[8, 9\\]"):
        summarise_times([ConvergenceTimes(2, 2, 2, 2, 8), ConvergenceTimes(2, 2, 2, 2, 9)])
