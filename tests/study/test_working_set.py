"""Measures of working sets against a plain float64 reference, and against the golden hosts."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

import routelab
from routelab.errors import EvaluationError
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.engine import WorkingSetAttention
from routelab.methods.wise.record import CardinalityAudit
from routelab.study.full_run import run_full
from routelab.study.working_set import (
    Coverage,
    Stability,
    add_audits,
    audit_size_matched,
    block_density,
    coverage,
    future_mass,
    maps,
    settled_at,
    stability,
    summarise_coverage,
    summarise_stability,
)
from routelab.study.working_set_masses import Masses, collect_masses
from tests.study.recurrent import Keeper, golden, tiny

STEPS, BLOCK = 8, 8
CONFIG = WISEConfig(discovery_steps=4, window=3, block_size=BLOCK, mass=0.7)


def ids_of(length: int, seed: int = 0) -> Tensor:
    return torch.randint(64, (1, length), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def masses() -> Masses:
    return collect_masses(tiny(), ids_of(29), num_steps=STEPS, block_size=BLOCK)


class Slow:
    """Blocks, supports and sets written with loops over Python sets, from whole attention matrices."""

    def __init__(self, model: torch.nn.Module, ids: Tensor) -> None:
        keeper = Keeper()
        run_full(model, keeper, ids, num_steps=STEPS)
        self.weights = keeper.weights
        self.n = ids.shape[1]
        self.blocks = -(-self.n // BLOCK)
        self.units = [
            (b, h, q)
            for b in range(model.config.n_layers_in_recurrent_block)
            for h in range(model.config.n_heads)
            for q in range(self.blocks)
        ]

    def rows(self, q: int) -> range:
        return range(q * BLOCK, min((q + 1) * BLOCK, self.n))

    def mass(self, step: int, unit: tuple[int, int, int]) -> list[float]:
        b, h, q = unit
        rows = self.weights[step, b][0, h, list(self.rows(q))]
        return [float(rows[:, k * BLOCK : (k + 1) * BLOCK].sum()) / len(rows) for k in range(q + 1)]

    def support(self, step: int, unit: tuple[int, int, int]) -> set[int]:
        mass = self.mass(step, unit)
        chosen: set[int] = set()
        for k in sorted(range(len(mass)), key=lambda k: -mass[k]):
            chosen.add(k)
            if sum(mass[k] for k in chosen) >= CONFIG.mass:
                break
        return chosen

    def rolling(self, step: int) -> set[tuple]:
        window = range(max(1, step - CONFIG.window + 1), step + 1)
        return {(*unit, k) for unit in self.units for t in window for k in self.support(t, unit)}

    def density(self, support: set[tuple]) -> float:
        return len(support) / sum(q + 1 for _, _, q in self.units)

    def future(self, support: set[tuple]) -> float:
        total, count = 0.0, 0
        for t in range(CONFIG.discovery_steps + 1, STEPS + 1):
            for b, h, q in self.units:
                for i in self.rows(q):
                    row = self.weights[t, b][0, h, i]
                    total += sum(float(row[j]) for j in range(i + 1) if (b, h, q, j // BLOCK) in support)
                    count += 1
        return total / count


@pytest.mark.parametrize("fields", [{}, {"architecture": "llama", "num_key_value_heads": 2}])
def test_measures_equal_the_reference(fields: dict) -> None:
    model, ids = tiny(**fields), ids_of(29)
    slow = Slow(model, ids)
    masses = collect_masses(model, ids, num_steps=STEPS, block_size=BLOCK)
    working = slow.rolling(CONFIG.discovery_steps)
    static = {(*unit, k) for unit in slow.units for k in slow.support(1, unit)}
    assert 0.2 < slow.density(working) < 0.95
    for condition, expected in (("wise", working), ("static", static)):
        config = WISEConfig(condition=condition, discovery_steps=4, window=3, block_size=BLOCK, mass=0.7)
        (found,) = coverage(masses, config)
        assert found.density == slow.density(expected)
        assert found.future_mass == pytest.approx(slow.future(expected), abs=1e-6)
    (found,) = stability(masses, CONFIG)
    sets = [slow.rolling(t) for t in range(1, STEPS + 1)]
    assert found.rolling == pytest.approx([len(a & b) / len(a | b) for a, b in itertools.pairwise(sets)])
    assert found.endpoint == pytest.approx(len(sets[3] & sets[-1]) / len(sets[3] | sets[-1]))


@pytest.mark.parametrize("condition", ["wise", "static", "mass_matched", "size_matched", "sink_local", "random"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_full_run_foretells_what_each_condition_reads(condition: str, causal: bool) -> None:
    model, ids = tiny(), ids_of(29)
    config = WISEConfig(condition, 4, 3, BLOCK, 0.7, causal=causal, seed=3, backend="reference")
    model.core_attention = engine = WorkingSetAttention(config)
    with torch.no_grad():
        model(ids, num_steps=STEPS)
    masses = collect_masses(model, ids, num_steps=STEPS, block_size=BLOCK, query_block=config.query_block)
    assert torch.equal(masses.late_support(config), engine.last.supports)


def test_full_attention_keeps_everything(masses: Masses) -> None:
    (found,) = coverage(masses, WISEConfig("full", 4, block_size=BLOCK))
    assert found == Coverage(1.0, pytest.approx(1.0, abs=1e-6))
    assert masses.queries.tolist() == [[8, 8, 8, 5]]


def test_a_padded_row_is_measured_as_it_is_alone() -> None:
    model, long, short = tiny(), ids_of(29), ids_of(19, 1)
    ids = torch.cat([long, torch.cat([torch.zeros(1, 10, dtype=torch.long), short], 1)])
    mask = torch.ones_like(ids)
    mask[1, :10] = 0
    together = collect_masses(model, ids, mask, num_steps=STEPS, block_size=BLOCK)
    for row, alone in enumerate((long, short)):
        single = collect_masses(model, alone, num_steps=STEPS, block_size=BLOCK)
        assert asdict(coverage(together, CONFIG)[row]) == pytest.approx(asdict(coverage(single, CONFIG)[0]), abs=1e-6)
        assert stability(together, CONFIG)[row].rolling == pytest.approx(stability(single, CONFIG)[0].rolling)


def test_units_may_freeze_at_steps_of_their_own(masses: Masses) -> None:
    support = masses.late_support(CONFIG)
    one = torch.full(support.shape[:-1], CONFIG.discovery_steps)
    assert future_mass(masses, support, one) == pytest.approx(future_mass(masses, support, CONFIG.discovery_steps))
    late = one.clone()
    late[0] = STEPS  # core block 0 never reuses: only the other one counts
    kept = (masses.mass[CONFIG.discovery_steps :, 1] * support[1]).sum(-1).double()
    expected = (kept * masses.queries[:, None]).sum() / masses.queries.sum() / kept.shape[0] / kept.shape[2]
    assert future_mass(masses, support, late) == pytest.approx([float(expected)])


def test_size_matched_has_the_size_of_wise_in_every_unit(masses: Masses) -> None:
    audit = audit_size_matched(masses, CONFIG)
    assert audit == CardinalityAudit(units=2 * 4 * 4, equal=2 * 4 * 4, largest_difference=0)
    assert audit.exact
    assert add_audits([audit, CardinalityAudit(5, 4, 2)]) == CardinalityAudit(37, 36, 2)


def test_stable_means_three_transitions_up_to_now() -> None:
    # Transitions into steps 2 … 8; the run is 4 -> 5, 5 -> 6, 6 -> 7 and is known at step 7.
    rolling = [0.2, 0.95, 0.3, 0.91, 0.90, 0.99, 0.99]
    assert settled_at(rolling, 0.90) == 7
    assert settled_at(rolling, 0.95) == 9
    assert Stability(rolling, 0.5).stable_at(0.90) == 7
    found = summarise_stability([Stability(rolling, 0.5), Stability([1.0] * 7, 1.0)])
    assert found["stable"]["0.90"] == [0, 0, 0, 0.5, 0.5, 0.5, 1, 1]
    assert found["stable"]["0.95"] == [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert found["rolling"][0] == pytest.approx(0.6)
    assert found["endpoint"] == 0.75
    assert json.loads(json.dumps(found)) == found


def test_summary_of_conditions() -> None:
    found = summarise_coverage({"wise": [Coverage(0.4, 0.9), Coverage(0.6, 1.0)]})
    assert found == {"wise": {"n": 2, "density": 0.5, "future_mass": pytest.approx(0.95)}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (WISEConfig("truncate", 4, block_size=BLOCK), "has no late steps"),
        (WISEConfig("wise", STEPS, block_size=BLOCK), "leaves no late step of 8"),
        (WISEConfig("full", STEPS, block_size=BLOCK), "no step of 8 comes after"),
        (WISEConfig("wise", 4, block_size=BLOCK, discovery="adaptive"), "frozen_at of its record"),
    ],
)
def test_what_has_no_late_support_is_refused(masses: Masses, config: WISEConfig, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        coverage(masses, config)


def test_stability_needs_the_discovery_step_and_an_example(masses: Masses) -> None:
    with pytest.raises(EvaluationError, match="beyond the 8 steps"):
        stability(masses, WISEConfig(block_size=BLOCK))
    with pytest.raises(EvaluationError, match="at least one example"):
        summarise_stability([])


@pytest.mark.parametrize("name", ["huginn_tiny", "recurrent_llama_tiny"])
def test_golden_density_and_future_mass(golden_root: Path, name: str) -> None:
    case = golden(golden_root / name)
    wise = case.reference["wise"]
    masses = collect_masses(
        case.model,
        case.expected["input_ids"],
        num_steps=wise["num_steps"],
        initial_state=case.expected["initial_state"],
        block_size=wise["block_size"],
    )
    given = case.expected["support_wise"].bool()[:, None]
    assert block_density(given, masses.allowed) == pytest.approx([case.reference["density"]], abs=1e-12)
    assert future_mass(masses, given, wise["discovery_steps"]) == pytest.approx(
        [case.reference["future_mass"]], abs=1e-5
    )
    config = routelab.WISEConfig(
        discovery_steps=wise["discovery_steps"], window=wise["window"], block_size=wise["block_size"], mass=wise["mass"]
    )
    (own,) = coverage(masses, config)
    blocks = int(masses.allowed.sum()) * given.shape[0] * given.shape[2]
    assert abs(own.density - case.reference["density"]) * blocks <= 1 + 1e-6
    assert own.future_mass == pytest.approx(case.reference["future_mass"], abs=1e-3)
    for condition, tensor in (("static", "static"), ("size_matched", "sizematched"), ("mass_matched", "massmatched")):
        support = masses.late_support(WISEConfig(condition, 12, 4, wise["block_size"], wise["mass"]))
        same = (support == case.expected[f"support_{tensor}"].bool()[:, None]).all(-1)
        assert same.double().mean() >= 0.99
    assert audit_size_matched(masses, config).exact


def test_maps_are_the_shares_of_heads_that_keep_a_block(masses: Masses) -> None:
    found = maps(masses, CONFIG)
    assert found is not None
    sets = masses.rolling_sets(CONFIG.mass, CONFIG.window)[:, :, 0]
    assert len(found) == STEPS
    for step, rows in enumerate(found):
        assert [len(row) for row in rows] == [q + 1 for q in range(sets.shape[-1])]
        for query, row in enumerate(rows):
            for key, share in enumerate(row):
                assert share == pytest.approx(sets[step, :, :, query, key].double().mean().item(), abs=5e-4)


def test_prompts_of_many_blocks_have_no_maps(masses: Masses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routelab.study.working_set.LARGEST_MAP", 3)
    assert maps(masses, CONFIG) is None
