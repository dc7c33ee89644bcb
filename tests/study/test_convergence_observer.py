"""Distances between steps against a float64 reference that holds every attention matrix."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from routelab.errors import EvaluationError, HostError
from routelab.study import convergence_observer
from routelab.study.convergence import Distances, convergence_times
from routelab.study.convergence_observer import (
    ConvergenceObserver,
    compare_rows,
    jensen_shannon,
    measure_convergence,
)
from routelab.study.full_run import run_full
from tests.study.recurrent import Keeper, golden, tiny

STEPS = 6


def slow_divergence(p: Tensor, q: Tensor) -> Tensor:
    middle = (p + q) / 2
    return (torch.xlogy(p, p / middle).nan_to_num(0) + torch.xlogy(q, q / middle).nan_to_num(0)).sum(-1) / 2


def slow_jaccard(first: Tensor, second: Tensor) -> float:
    """Of ``[H, n, n]`` causal weights."""
    values = []
    for head in range(len(first)):
        for i in range(first.shape[1]):
            size = min(16, i + 1)
            a, b = (set(x[head, i, : i + 1].topk(size).indices.tolist()) for x in (first, second))
            values.append(len(a & b) / len(a | b))
    return sum(values) / len(values)


def slow(model: torch.nn.Module, ids: Tensor) -> Distances:
    keeper = Keeper()
    states = run_full(model, keeper, ids, num_steps=STEPS, output_states=True)
    blocks = range(model.config.n_layers_in_recurrent_block)
    weights, outputs = keeper.weights, keeper.outputs
    return Distances(
        support=[[slow_jaccard(weights[t - 1, b][0], weights[t, b][0]) for b in blocks] for t in range(2, STEPS + 1)],
        attention=[
            [float(slow_divergence(weights[t - 1, b], weights[t, b]).mean()) for b in blocks]
            for t in range(2, STEPS + 1)
        ],
        state=[float((states[t] - states[t - 1]).norm() / states[t - 1].norm()) for t in range(1, STEPS)],
        output=[
            [float((outputs[t, b] - outputs[t - 1, b]).norm() / outputs[t - 1, b].norm()) for b in blocks]
            for t in range(2, STEPS + 1)
        ],
    )


def equal(first: Distances, second: Distances) -> None:
    for name in ("support", "attention", "state", "output"):
        torch.testing.assert_close(
            torch.tensor(getattr(first, name)), torch.tensor(getattr(second, name)), rtol=1e-5, atol=1e-9
        )


@pytest.mark.parametrize("fields", [{}, {"architecture": "llama", "num_key_value_heads": 2}])
def test_distances_equal_the_reference(fields: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(**fields)
    ids = torch.randint(64, (1, 37), generator=torch.Generator().manual_seed(0))
    expected = slow(model, ids)
    assert expected.curve("support")[0] < 0.9  # something moves
    equal(measure_convergence(model, ids, num_steps=STEPS)[0], expected)
    monkeypatch.setattr(convergence_observer, "_TILE", 5 * 4 * 37)  # tiles of five queries
    equal(measure_convergence(model, ids, num_steps=STEPS)[0], expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_row_is_measured_as_it_is_alone(side: str) -> None:
    model = tiny()
    generator = torch.Generator().manual_seed(1)
    long, short = torch.randint(64, (1, 30), generator=generator), torch.randint(64, (1, 21), generator=generator)
    filler, ones = torch.zeros(1, 9, dtype=torch.long), torch.ones(1, 21, dtype=torch.long)
    order = (filler, short) if side == "left" else (short, filler)
    mask = (filler, ones) if side == "left" else (ones, filler)
    ids = torch.cat([long, torch.cat(order, 1)])
    mask = torch.cat([torch.ones(1, 30, dtype=torch.long), torch.cat(mask, 1)])
    together = measure_convergence(model, ids, mask, num_steps=STEPS)
    for row, alone in zip(together, (long, short), strict=True):
        equal(row, measure_convergence(model, alone, num_steps=STEPS)[0])


def test_some_queries_stand_for_all() -> None:
    generator = torch.Generator().manual_seed(2)
    old, new = ([torch.randn(4, 20, 8, generator=generator, dtype=torch.float64) for _ in range(2)] for _ in range(2))
    with_last = compare_rows([old[0], old[1]], [new[0], new[1]], every=7)
    weights = []
    for query, key in (old, new):
        scores = query @ key.transpose(1, 2) / 8**0.5
        weights.append(scores.masked_fill(torch.ones(20, 20, dtype=torch.bool).triu(1), -torch.inf).softmax(-1))
    rows = [5, 12, 19]
    assert with_last[1] == pytest.approx(float(slow_divergence(*weights)[:, rows].mean()))
    with pytest.raises(EvaluationError, match="every=0"):
        ConvergenceObserver(every=0)


def test_the_divergence_of_near_and_of_disjoint_rows() -> None:
    p = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    q = p + 1e-5 * torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    exact = float(slow_divergence(p, q))
    # 3e-11 is far below the rounding of float32 probabilities' logarithms, not below that of their differences.
    assert float(jensen_shannon(p, q)) == pytest.approx(exact, rel=1e-4)
    assert float(jensen_shannon(p.float(), q.float())) == pytest.approx(exact, rel=2e-2)
    apart = jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    assert float(apart) == pytest.approx(0.6931472, rel=1e-5)
    assert float(jensen_shannon(p, p)) == 0.0


def test_the_observer_changes_nothing_and_is_gone_afterwards() -> None:
    model = tiny()
    ids = torch.arange(12)[None]
    before, held = model(ids, num_steps=3).logits, model.core_attention
    measure_convergence(model, ids, num_steps=3)
    assert model.core_attention is held
    observer = ConvergenceObserver()
    model.core_attention = observer
    assert torch.equal(model(ids, num_steps=3).logits, before)
    cache = model(ids, num_steps=3, use_cache=True).cache
    with pytest.raises(EvaluationError, match="without a cache"):
        model(ids, num_steps=3, cache=cache)


def test_other_hosts_and_a_single_step_are_refused(make_host) -> None:
    with pytest.raises(HostError, match="no recurrent core"):
        measure_convergence(make_host("olmoe"), torch.arange(4)[None])
    with pytest.raises(EvaluationError, match="num_steps=1"):
        measure_convergence(tiny(), torch.arange(4)[None], num_steps=1)


@pytest.mark.parametrize("name", ["huginn_tiny", "recurrent_llama_tiny"])
def test_states_of_a_golden_host(golden_root: Path, name: str) -> None:
    case = golden(golden_root / name)
    found = measure_convergence(
        case.model, case.expected["input_ids"], initial_state=case.expected["initial_state"], num_steps=32
    )[0]
    states = case.expected["states"].double()
    expected = [(states[t] - states[t - 1]).norm() / states[t - 1].norm() for t in range(1, 32)]
    torch.testing.assert_close(
        torch.tensor(found.state, dtype=torch.float64), torch.stack(expected), rtol=1e-3, atol=1e-4
    )
    times = convergence_times(found)
    assert 2 <= times.support <= 33
    assert times.num_steps == 32
