"""The local quadratic against its definition: minimise both ways and compare (appendix B, equations 19-21)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.errors import EvaluationError
from routelab.study.quadratic import FLOOR, compromise


def draw(seed: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(2, k, k))
    return rng.normal(size=(2, k)), roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(k)


def loss(move: np.ndarray, gradient: np.ndarray, curvature: np.ndarray) -> float:
    return float(gradient @ move + 0.5 * move @ curvature @ move)


@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(0.05, 0.95))
def test_penalty_and_gain_are_differences_of_minima(seed: int, k: int, p: float) -> None:
    g, h = draw(seed, k)
    shares = (p, 1 - p)
    found = compromise(g, h, shares)
    own = sum(s * loss(found.apart[r], g[r], h[r]) for r, s in enumerate(shares))
    common = sum(s * loss(found.together, g[r], h[r]) for r, s in enumerate(shares))
    assert not found.clipped
    assert found.penalty == pytest.approx(common - own, rel=1e-8, abs=1e-10)
    assert found.gain == pytest.approx(-own, rel=1e-8)
    assert 0 <= found.penalty <= found.gain * (1 + 1e-9), "the common move can always be no move"
    # both really are minima
    for r in range(2):
        assert np.abs(g[r] + h[r] @ found.apart[r]).max() < 1e-8
    assert np.abs(sum(s * (g[r] + h[r] @ found.together) for r, s in enumerate(shares))).max() < 1e-8


def test_equal_curvature_is_equation_21() -> None:
    g, h = draw(3, 4)
    h = np.stack([h[0], h[0]])
    found = compromise(g, h, (0.3, 0.7))
    apart = found.apart[0] - found.apart[1]
    assert found.penalty == pytest.approx(0.5 * 0.3 * 0.7 * apart @ h[0] @ apart)
    assert found.together == pytest.approx(0.3 * found.apart[0] + 0.7 * found.apart[1])


def test_modes_that_agree_pay_nothing_and_opposed_ones_everything() -> None:
    g, h = draw(1, 3)
    same = compromise(np.stack([g[0], g[0]]), np.stack([h[0], h[0]]), (0.5, 0.5))
    assert same.penalty == pytest.approx(0, abs=1e-12)
    opposed = compromise(np.stack([g[0], -g[0]]), np.stack([h[0], h[0]]), (0.5, 0.5))
    assert opposed.penalty == pytest.approx(opposed.gain)


def test_negative_curvature_is_raised_and_said() -> None:
    h = np.stack([np.diag([4.0, -1.0]), np.diag([2.0, 1.0])])
    found = compromise(np.ones((2, 2)), h, (0.5, 0.5))
    assert found.clipped
    assert found.apart[0] == pytest.approx([-0.25, -1 / (4 * FLOOR)])
    with pytest.raises(EvaluationError, match="no direction has a positive curvature"):
        compromise(np.ones((2, 2)), -h[1:].repeat(2, axis=0), (0.5, 0.5))


def test_bad_arguments() -> None:
    g, h = draw(0, 2)
    with pytest.raises(EvaluationError, match=r"\(2, 3, 3\)"):
        compromise(g, draw(0, 3)[1], (0.5, 0.5))
    for shares in ((0.0, 1.0), (0.5, 0.6)):
        with pytest.raises(EvaluationError, match="sum to 1"):
            compromise(g, h, shares)
