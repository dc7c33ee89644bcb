"""The engine on whole forwards: what each condition reads, when, and that the early steps are the host's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from routelab.errors import ConfigError, HostError
from routelab.hosts.recurrent import CoreCall, RecurrentForCausalLM
from routelab.methods.wise.conditions import working_set
from routelab.methods.wise.config import CONDITIONS, FOLLOWERS, WISEConfig
from routelab.methods.wise.engine import WorkingSetAttention, running
from routelab.methods.wise.layer import block_support, mass_matched, top_support
from routelab.methods.wise.record import Record, audit_cardinality, block_density, jaccard

CONFIG = WISEConfig(discovery_steps=5, window=3, block_size=8, mass=0.6)
STEPS = 9
IDS = torch.randint(1, 64, (1, 45), generator=torch.Generator().manual_seed(1))
MakeRecurrent = Callable[..., RecurrentForCausalLM]


@torch.no_grad()
def run(
    model: RecurrentForCausalLM, config: WISEConfig, ids: Tensor = IDS, steps: int = STEPS, **inputs: object
) -> tuple[Tensor, Tensor, Record]:
    with running(model, config, record=True) as engine:
        output = model(ids, num_steps=steps, output_states=True, **inputs)
    return output.logits, output.states, engine.records[0]


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("padded", [False, True])
def test_early_steps_are_bit_identical_to_full(make_recurrent: MakeRecurrent, condition: str, padded: bool) -> None:
    recurrent = make_recurrent("llama" if padded else "huginn")
    ids = IDS.expand(2, -1)
    mask = torch.ones_like(ids)
    if padded:
        mask[1, :13] = 0
    with torch.no_grad():
        full = recurrent(ids, attention_mask=mask, num_steps=STEPS, output_states=True)
    for record in (False, True):
        with torch.no_grad(), running(recurrent, replace(CONFIG, condition=condition), record=record):
            output = recurrent(ids, attention_mask=mask, num_steps=STEPS, output_states=True)
        assert torch.equal(output.states[:5], full.states[:5])
        late = output.states[5:]
        if condition == "full":
            assert torch.equal(output.logits, full.logits)
        elif condition == "truncate":
            assert len(late) == 0
        else:
            assert not torch.allclose(late, full.states[5:], atol=1e-3)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_short_recurrences_and_whole_mass_are_full(make_recurrent: MakeRecurrent, condition: str, causal: bool) -> None:
    model = make_recurrent("llama")
    full = run(model, WISEConfig(condition="full"))[0]
    config = replace(CONFIG, condition=condition, causal=causal)
    short = run(model, config, steps=5)
    assert torch.equal(short[0], run(model, WISEConfig(condition="full"), steps=5)[0])
    assert (short[2].supports, short[2].density, short[2].backend) == (None, 1.0, "none")
    if condition not in ("truncate", "freeze"):
        logits, _, record = run(model, replace(config, mass=1.0))
        assert (logits - full).abs().max() < 1e-4
        assert record.density == 1.0


@pytest.mark.parametrize("condition", [*FOLLOWERS, "static"])
def test_supports_follow_their_definitions(recurrent: RecurrentForCausalLM, condition: str) -> None:
    """From the masses of an independent full run, which agree with WISE's up to t_d."""
    _, _, record = run(recurrent, replace(CONFIG, condition=condition))
    _, _, full = run(recurrent, WISEConfig(condition="full", block_size=8))
    assert sorted(full.masses) == list(range(1, STEPS + 1))
    assert sorted(record.masses) == list(range(1, 6))
    assert all(torch.equal(record.masses[step], full.masses[step]) for step in record.masses)
    first, allowed = full.masses[1], full.allowed
    assert torch.allclose(first.sum(-1), torch.ones_like(first.sum(-1)), atol=1e-5)
    working = working_set((full.masses[step] for step in (3, 4, 5)), allowed, 0.6)
    wanted = {
        "wise": working,
        "static": block_support(first, allowed, 0.6),
        "mass_matched": mass_matched(first, allowed, working),
        "size_matched": top_support(first, allowed, working.sum(-1)),
    }
    assert record.supports is not None
    if condition in wanted:
        assert torch.equal(record.supports, wanted[condition])
    if condition in FOLLOWERS:
        assert torch.equal(record.working_sets, working)
    if condition in ("size_matched", "sink_local", "random"):
        assert audit_cardinality(record.supports, working, allowed).exact
        assert not torch.equal(record.supports, working)
    assert not (record.supports & ~allowed).any()
    assert record.supports.any(-1).all()


def test_freeze_keeps_the_weights_of_the_last_full_step(make_recurrent: MakeRecurrent) -> None:
    """Against the definition of appendix B, materialised."""
    torch.manual_seed(0)
    engine = WorkingSetAttention(replace(CONFIG, condition="freeze"))
    call = CoreCall(7, 24, 24, None, False, None)
    inputs = [tuple(torch.randn(1, heads, 24, 8) for heads in (4, 2, 2)) for _ in range(7)]
    engine.begin(call)
    outputs = [engine.attend(step, 0, *inputs[step - 1]) for step in range(1, 8)]
    engine.end()
    assert engine.last is not None
    assert engine.last.supports is not None
    query, key, _ = inputs[4]
    scores = query @ key.repeat_interleave(2, 1).transpose(2, 3) / 8**0.5
    weights = scores.masked_fill(torch.ones(24, 24).triu(1).bool(), -torch.inf).softmax(-1)
    inside = engine.last.supports[0].repeat_interleave(8, 2).repeat_interleave(8, 3)
    assert not inside.all()
    weights = weights * inside
    weights = weights / weights.sum(-1, keepdim=True)
    for step in (6, 7):
        assert torch.allclose(outputs[step - 1], weights @ inputs[step - 1][2].repeat_interleave(2, 1), atol=1e-5)


def test_given_supports_are_read(recurrent: RecurrentForCausalLM) -> None:
    logits, _, record = run(recurrent, CONFIG)
    with torch.no_grad(), running(recurrent, replace(CONFIG, condition="static")) as engine:
        with engine.given(record.supports):
            assert torch.equal(recurrent(IDS, num_steps=STEPS).logits, logits)
            assert engine.last is not None
            assert engine.last.looked == 0
            with pytest.raises(ConfigError, match="core block 0 of this call needs"):
                recurrent(IDS[:, :20], num_steps=STEPS)
        assert not torch.equal(recurrent(IDS, num_steps=STEPS).logits, logits)


def test_steps_outside_the_window_are_not_looked_at(
    recurrent: RecurrentForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    observe = "routelab.methods.wise.trajectory.observe"
    from routelab.methods.wise.readers import observe as original

    monkeypatch.setattr(observe, lambda *arguments: looked.append("") or original(*arguments))
    for condition, times in {"wise": 3, "size_matched": 4, "static": 1, "full": 0, "truncate": 0, "freeze": 3}.items():
        looked.clear()
        with torch.no_grad(), running(recurrent, replace(CONFIG, condition=condition)) as engine:
            recurrent(IDS, num_steps=STEPS)
        assert len(looked) == times * 2  # two core blocks
        assert engine.last is not None
        assert engine.last.looked == times
        assert not engine.last.masses
        assert not engine.records


@pytest.mark.parametrize("discovery", ["adaptive", "margin"])
@pytest.mark.parametrize("causal", [False, True])
def test_early_freezing(make_recurrent: MakeRecurrent, discovery: str, causal: bool) -> None:
    """Units freeze at the first step the rule allows, with the rolling working set of that step, t_d at the latest."""
    model = make_recurrent("huginn")
    config = replace(CONFIG, discovery=discovery, causal=causal, discovery_steps=12)
    logits, states, record = run(model, config, steps=16)
    _, full, masses = run(model, replace(config, condition="full", discovery="fixed"), steps=16)
    frozen = record.frozen_at
    assert frozen is not None
    assert record.supports is not None
    assert int(frozen.min()) >= (4 if discovery == "adaptive" else 5)
    assert int(frozen.max()) <= 12
    earliest = int(frozen.min())
    assert earliest < 12, "nothing froze early: the test shows nothing"
    assert torch.equal(states[:earliest], full[:earliest])
    assert logits.isfinite().all()
    first = frozen == earliest
    window = range(max(1, earliest - 2), earliest + 1)
    working = working_set((masses.masses[step] for step in window), record.allowed, 0.6)
    assert torch.equal(record.supports[first], working[first])
    if discovery == "adaptive" and not causal:
        assert frozen.unique().numel() == 1


def test_adaptive_freezing_follows_the_jaccard(make_recurrent: MakeRecurrent) -> None:
    model = make_recurrent("huginn")
    config = replace(CONFIG, discovery="adaptive", discovery_steps=20)
    _, _, record = run(model, config, steps=24)
    masses = run(model, replace(config, condition="full", discovery="fixed"), steps=24)[2].masses
    rolling = [
        working_set((masses[s] for s in range(max(1, step - 2), step + 1)), record.allowed, 0.6)
        for step in range(1, 21)
    ]
    stable = [jaccard(a, b) >= 0.9 for a, b in itertools.pairwise(rolling)]
    runs = [index + 4 for index in range(len(stable) - 2) if all(stable[index : index + 3])]
    assert record.frozen_at is not None
    assert int(record.frozen_at.max()) == (runs or [20])[0]


def test_records_can_be_read(make_recurrent: MakeRecurrent) -> None:
    _, _, record = run(make_recurrent("llama"), CONFIG)
    assert record.supports is not None
    assert record.density == block_density(record.supports, record.allowed)
    assert 0 < record.density < 1
    assert torch.equal(record.cardinalities, record.supports.sum(-1))
    summary = record.summary()
    assert summary["units"] == 2 * 4 * 6
    assert summary["steps"], summary["discovery_steps"] == (9, 5)
    assert summary["backend"] == "gather"
    smaller = record.supports.clone()
    smaller[0, 0, 0, 5, int(smaller[0, 0, 0, 5].nonzero()[0])] = False
    audit = audit_cardinality(record.supports, smaller, record.allowed)
    assert (audit.units, audit.equal, audit.largest_difference, audit.exact) == (48, 47, 1, False)


def test_running_a_step_again_is_refused() -> None:
    engine = WorkingSetAttention(CONFIG)
    tensors = [torch.randn(1, 2, 9, 8) for _ in range(3)]
    with pytest.raises(HostError, match="before begin"):
        engine.attend(1, 0, *tensors)
    engine.begin(CoreCall(3, 9, 9, None, False, None))
    engine.attend(2, 0, *tensors)
    with pytest.raises(HostError, match="runs forwards only"):
        engine.attend(1, 0, *tensors)
