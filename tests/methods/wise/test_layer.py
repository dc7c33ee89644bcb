"""The mathematics of supports, against the paper written out for one unit at a time in exact arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from routelab.methods.wise import layer


def support_of(mass: list[Fraction], allowed: list[bool], target: Fraction) -> set[int]:
    """Eq. 6 for one unit: blocks by falling mass, lower index first, until the target; at least one."""
    order = sorted((b for b, admitted in enumerate(allowed) if admitted), key=lambda b: (-mass[b], b))
    taken: set[int] = set()
    for block in order:
        if taken and sum(mass[b] for b in taken) >= target:
            break
        taken.add(block)
    return taken


def as_set(row: Tensor) -> set[int]:
    return set(row.nonzero()[:, 0].tolist())


# Sixteenths are exact in binary, so ties and edges are what they seem.
MASSES = st.lists(st.integers(0, 16), min_size=1, max_size=7)


@settings(max_examples=150, deadline=None)
@given(MASSES, st.integers(0, 2**7 - 1), st.integers(1, 64))
def test_mass_support_is_equation_6(sixteenths: list[int], bits: int, target: int) -> None:
    allowed = [bool(bits >> b & 1) for b in range(len(sixteenths))]
    exact = [Fraction(n, 16) for n in sixteenths]
    found = layer.mass_support(
        torch.tensor(sixteenths).float()[None] / 16, torch.tensor(allowed)[None], torch.tensor([target / 16])
    )
    assert as_set(found[0]) == support_of(exact, allowed, Fraction(target, 16))


def test_equal_blocks_are_taken_from_the_front() -> None:
    mass = torch.tensor([[0.25, 0.25, 0.25, 0.25]])
    assert layer.block_support(mass, torch.ones(1, 4, dtype=torch.bool), 0.5).tolist() == [[True, True, False, False]]
    # Block 0 is not admissible, so it is not the first of the equal ones.
    allowed = torch.tensor([[False, True, True, True]])
    assert layer.block_support(mass, allowed, 0.5).tolist() == [[False, True, True, False]]


def test_no_smaller_set_reaches_the_mass() -> None:
    masses = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(40, 6, dtype=torch.bool)
    support = layer.block_support(masses, allowed, 0.8)
    for mass, row in zip(masses.double(), support, strict=True):
        size, goal = int(row.sum()), 0.8 * mass.sum()
        assert mass[row].sum() >= goal
        assert all(mass[list(other)].sum() < goal for other in itertools.combinations(range(6), size - 1))


def test_every_unit_has_a_block_and_share_one_has_all() -> None:
    mass, allowed = torch.zeros(2, 3, 4), torch.tensor([[True, True, False, False]] * 3)
    assert layer.block_support(mass, allowed, 0.5).sum(-1).eq(1).all()
    mass[..., 0] = 1.0
    assert torch.equal(layer.block_support(mass, allowed, 1), allowed.expand(2, 3, 4))
    assert not layer.block_support(mass, torch.zeros_like(allowed), 0.5).any()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_matching_the_mass_of_the_best_blocks_gives_them_back(seed: int) -> None:
    """The target is a sum of float32 masses in another order; rounding must not add a block."""
    generator = torch.Generator().manual_seed(seed)
    mass = 1e-6 + torch.rand(30, 64, generator=generator).pow(4)
    mass = mass / mass.sum(-1, keepdim=True)
    allowed = torch.ones_like(mass, dtype=torch.bool)
    best = layer.top_support(mass, allowed, torch.randint(1, 64, (30,), generator=generator))
    assert torch.equal(layer.mass_matched(mass, allowed, best), best)


def test_mass_matched_reaches_the_mass_of_the_working_set() -> None:
    mass, allowed = torch.rand(50, 9, generator=torch.Generator().manual_seed(1)), torch.ones(50, 9, dtype=torch.bool)
    working = torch.rand(50, 9, generator=torch.Generator().manual_seed(2)) < 0.4
    working[:, 3] = True
    matched = layer.mass_matched(mass, allowed, working)
    reached, wanted = layer.total_mass(mass, matched), layer.total_mass(mass, working)
    assert (reached >= wanted - layer.SLACK).all()
    least = mass.double().masked_fill(~matched, torch.inf).amin(-1)
    assert ((reached - least < wanted) | (matched.sum(-1) == 1)).all()


def test_top_support_has_the_size_asked_for() -> None:
    score, allowed = torch.rand(4, 5, 6, generator=torch.Generator().manual_seed(0)), torch.ones(5, 6).tril(1).bool()
    count = torch.arange(5).clamp(1).expand(4, 5)
    chosen = layer.top_support(score, allowed, count)
    assert torch.equal(chosen.sum(-1), count)
    assert not (chosen & ~allowed).any()


def test_the_sink_comes_first_and_then_the_latest() -> None:
    allowed = torch.tensor([[True] * 5 + [False]])
    scores = layer.sink_local_scores(6).expand(1, 6)
    chosen = [as_set(layer.top_support(scores, allowed, torch.tensor([n]))[0]) for n in (1, 2, 3)]
    assert chosen == [{0}, {0, 4}, {0, 3, 4}]


def test_random_scores_depend_on_the_place_alone() -> None:
    scores = layer.random_scores(3, 1, 4, torch.arange(5).expand(2, 5), 6)
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(layer.random_scores(3, 1, 4, torch.tensor([[4]]), 9)[0, :, 0, :6], scores[0, :, 4])
    assert scores.unique().numel() == 4 * 5 * 6
    for other in (
        layer.random_scores(4, 1, 4, torch.arange(5)[None], 6),
        layer.random_scores(3, 0, 4, torch.arange(5)[None], 6),
    ):
        assert not (other == scores[:1]).any()
    # No block is preferred: each of 6 is the best of its unit about as often.
    many = layer.random_scores(0, 0, 50, torch.arange(60)[None], 6).argmax(-1).flatten()
    assert (many.bincount(minlength=6) / len(many) - 1 / 6).abs().max() < 0.03


def margin_of(mass: list[float], share: float) -> float:
    """Eq. 13 for one unit."""
    ranked = sorted(mass, reverse=True)
    size = next(k for k in range(1, len(mass) + 1) if sum(ranked[:k]) >= share)
    terms = [(sum(ranked[:size]) - share) / size]
    if size < len(mass):
        terms.append((ranked[size - 1] - ranked[size]) / 2)
    if size > 1:
        terms.append((share - sum(ranked[: size - 1])) / (size - 1))
    return min(terms)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 0.99), st.floats(-0.999, 0.999))
def test_the_margin_is_equation_13_and_theorem_6_1_holds(seed: int, share: float, step: float) -> None:
    """A mass that moved by less than the margin, anywhere and however, has the same support."""
    generator = torch.Generator().manual_seed(seed)
    mass = torch.rand(20, 8, generator=generator, dtype=torch.float64).pow(3)
    mass = mass / mass.sum(-1, keepdim=True)
    allowed = torch.ones(20, 8, dtype=torch.bool)
    margin = layer.support_margin(mass, allowed, share)
    assert margin.tolist() == pytest.approx([margin_of(row, share) for row in mass.tolist()], abs=1e-12)
    support = layer.mass_support(mass, allowed, share)
    # Corners of the cube of moves are the worst ones; the sum need not stay one, but a mass is never negative.
    signs = torch.randint(0, 2, mass.shape, generator=generator).double() * 2 - 1
    moved = (mass + step * margin[:, None] * signs).clamp_min(0.0)
    safe = margin > 1e-9
    assert torch.equal(layer.mass_support(moved, allowed, share)[safe], support[safe])


def test_just_beyond_the_margin_the_support_changes() -> None:
    mass, allowed = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool)
    margin = layer.support_margin(mass, allowed, 0.8)
    assert margin.item() == pytest.approx(0.05)  # (0.9 - 0.8) / 2
    before = layer.mass_support(mass, allowed, 0.8)
    worst = torch.tensor([[-1.0, -1.0, 0.0]], dtype=torch.float64)
    assert torch.equal(layer.mass_support(mass + 0.99 * margin * worst, allowed, 0.8), before)
    assert not torch.equal(layer.mass_support(mass + 1.01 * margin * worst, allowed, 0.8), before)


def test_margins_at_the_edges() -> None:
    mass = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    allowed = torch.tensor([[True, True, False], [False] * 3])
    assert layer.support_margin(mass, allowed, 0.9).tolist() == pytest.approx([0.05, 0.0])
    assert layer.support_margin(mass, allowed, 1).tolist() == [float("inf"), 0.0]
    ties = layer.support_margin(torch.tensor([[0.4, 0.4, 0.2]]), torch.ones(1, 3, dtype=torch.bool), 0.3)
    assert ties.item() == 0.0


def test_contraction_and_drift_of_a_geometric_approach() -> None:
    rate = torch.tensor([0.3, 0.9], dtype=torch.float64)
    away = torch.stack([rate**t for t in range(6)])
    moves = away[:-1] - away[1:]
    assert torch.allclose(layer.contraction(moves), rate)
    assert torch.allclose(layer.remaining_drift(moves[-1], rate), away[-1])
    assert layer.remaining_drift(torch.tensor([0.1]), torch.tensor([1.0])).isinf().all()
    assert layer.contraction(torch.zeros(4, 2)).tolist() == [1.0, 1.0]


def test_still_mass_has_no_drift() -> None:
    assert layer.remaining_drift(torch.zeros(1), torch.tensor([0.5])).item() == 0.0
