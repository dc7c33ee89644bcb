"""Margins, contraction and the bound of equation 16, on made-up trajectories and on a small host."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from routelab.errors import EvaluationError
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.record import Record
from routelab.study.margins import fitted_contraction, last_true, margins, measure_margins, stabilisation_bound

CONFIG = WISEConfig(block_size=8, mass=0.8)


def trajectory(seed: int, beta: float, steps: int = 20) -> Record:
    """Masses ``[1, 1, 2 heads, 3, 4]`` that approach their limits geometrically, from one side."""
    generator = torch.Generator().manual_seed(seed)
    start, limit = (torch.rand(1, 1, 2, 3, 4, generator=generator).pow(3) for _ in range(2))
    allowed = torch.ones(3, 4).tril(1).bool()[None, None]
    start, limit = (x * allowed / (x * allowed).sum(-1, keepdim=True) for x in (start, limit))
    masses = {t: (limit + (start - limit) * beta**t) for t in range(1, steps + 1)}
    return Record("full", steps, steps, "none", allowed, torch.arange(3)[None], masses=masses)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.2, 0.9))
def test_the_bound_holds_and_the_contraction_is_found(seed: int, beta: float) -> None:
    record = trajectory(seed, beta)
    states = torch.randn(20, 1, 24, 5, generator=torch.Generator().manual_seed(seed))
    found = margins(record, states, torch.ones(1, 24), CONFIG)
    assert len(found.margin) == 6
    enough = found.beta.isfinite()
    assert torch.allclose(found.beta[enough], torch.full_like(found.beta[enough], beta), atol=0.03)
    assert (found.observed <= found.bound).all()
    # The limit is approached from one side at a constant rate, so what the rule calls settled is settled.
    assert not found.violated.any()


def test_equation_16() -> None:
    beta, margin, constant = 0.5, 0.01, 0.8
    away = torch.tensor([[constant * beta**t] for t in range(1, 11)], dtype=torch.float64)
    bound = stabilisation_bound(away, torch.tensor([beta]).double(), torch.tensor([margin]).double())
    assert bound.item() == math.floor(math.log(constant / margin) / -math.log(beta)) + 1
    assert away[int(bound) - 1] < margin <= away[int(bound) - 2]
    assert stabilisation_bound(away, torch.tensor([1.1]).double(), torch.tensor([margin]).double()).isinf()
    assert stabilisation_bound(away, torch.tensor([beta]).double(), torch.zeros(1).double()).isinf()
    assert stabilisation_bound(away * 0, torch.tensor([math.nan]).double(), torch.tensor([margin]).double()).item() == 1


def test_parts() -> None:
    flags = torch.tensor([[True, False, False], [True, False, True], [False, False, False]])
    assert last_true(flags).tolist() == [2, 0, 2]
    moves = torch.stack([0.1 * torch.tensor([0.5, 0.9]) ** t for t in range(8)])
    assert fitted_contraction(moves).tolist() == pytest.approx([0.5, 0.9], abs=1e-6)
    moves[1:] = 0.0
    assert fitted_contraction(moves).isnan().all()


def test_on_a_host() -> None:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_heads": 4, "intermediate_size": 48, "vocab_size": 64, "padding_multiple": 64}
    blocks = {"n_layers_in_prelude": 1, "n_layers_in_recurrent_block": 2, "n_layers_in_coda": 1, "block_size": 64}
    model = RecurrentForCausalLM(RecurrentConfig(**sizes, **blocks)).eval()
    ids, mask = torch.randint(1, 64, (2, 30)), torch.ones(2, 30, dtype=torch.long)
    mask[1, :11] = 0
    before = model.core_attention
    found = measure_margins(model, ids, CONFIG, attention_mask=mask, num_steps=10)
    assert model.core_attention is before
    assert len(found.margin) == 2 * 4 * (4 + 3)  # core blocks, heads, query blocks of 30 and 19 tokens
    assert (found.margin >= 0).all()
    assert (found.observed <= 10).all()
    assert (found.motion >= 0).all()
    # Proposition 1: states still move after the support has come to rest.
    assert found.motion[found.observed < 10].max() > 0.01
    assert (found.motion[found.observed == 10] == 0).all()
    summary = found.summary()
    assert summary["bound_holds"] == 1.0
    assert summary["units"] == 56
    assert 0 <= summary["violation_rate"] <= 1 or math.isnan(summary["violation_rate"])
    with pytest.raises(EvaluationError, match="two or more steps"):
        measure_margins(model, ids, CONFIG, num_steps=1)
