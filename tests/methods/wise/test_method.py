"""The contract: attach, say what was matched, refuse what cannot be, save, load, detach."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

import routelab
from routelab import WISEConfig
from routelab.errors import BackendError, ConfigError, ConflictError, HostError
from routelab.hosts.recurrent import FullCoreAttention, RecurrentForCausalLM

CONFIG = WISEConfig(discovery_steps=3, window=2, block_size=8, mass=0.6)
IDS = torch.randint(1, 64, (1, 33), generator=torch.Generator().manual_seed(1))
MakeRecurrent = Callable[..., RecurrentForCausalLM]


@torch.no_grad()
def logits(model: RecurrentForCausalLM) -> torch.Tensor:
    return model(IDS, num_steps=6).logits


def test_attach_and_detach(recurrent: RecurrentForCausalLM) -> None:
    before, full = logits(recurrent), recurrent.core_attention
    flags = [parameter.requires_grad for parameter in recurrent.parameters()]
    routelab.attach(recurrent, CONFIG)
    (method,) = routelab.attached(recurrent)
    assert method.config == CONFIG
    assert list(method.parameters()) == []
    assert method.state_dict() == {}
    assert not torch.equal(logits(recurrent), before)
    assert method.last is not None
    assert 0 < method.last.density < 1
    assert not method.records
    method.record = True
    logits(recurrent)
    assert len(method.records) == 1
    assert sorted(method.records[0].masses) == [1, 2, 3]
    routelab.detach(recurrent)
    assert recurrent.core_attention is full
    assert isinstance(full, FullCoreAttention)
    assert torch.equal(logits(recurrent), before)
    assert [parameter.requires_grad for parameter in recurrent.parameters()] == flags


def test_it_says_what_it_matched(make_recurrent: MakeRecurrent) -> None:
    summary = routelab.attached(routelab.attach(make_recurrent(), CONFIG))[0].summary()
    assert summary.layers == (0, 1)
    assert summary.modules == ("transformer.core_block.0", "transformer.core_block.1")
    assert (summary.new_parameters, summary.trainable_parameters) == (0, 0)
    assert summary.details["condition"] == "wise"
    assert str(summary).startswith("wise: layers 0, 1; 2 modules; 0 new and 0 trainable parameters")


def test_save_and_load(make_recurrent: MakeRecurrent, tmp_path: Path) -> None:
    model = routelab.attach(make_recurrent("llama"), CONFIG)
    routelab.save(model, tmp_path / "routing")
    loaded = routelab.load(tmp_path / "routing", make_recurrent("llama"))
    assert routelab.attached(loaded)[0].config == CONFIG
    assert torch.equal(logits(loaded), logits(model))


def test_a_copy_is_on_its_own(make_recurrent: MakeRecurrent) -> None:
    model = make_recurrent()
    before = logits(model)
    routelab.attach(model, CONFIG)
    copied = copy.deepcopy(model)
    within = logits(model)
    routelab.detach(copied)
    assert torch.equal(logits(copied), before)
    assert torch.equal(logits(model), within)
    assert not torch.equal(within, before)


def test_given_supports_through_the_method(make_recurrent: MakeRecurrent) -> None:
    model = routelab.attach(make_recurrent(), CONFIG)
    method = routelab.attached(model)[0]
    within = logits(model)
    everything = method.last.allowed.expand(method.last.supports.shape)
    with method.given(everything):
        assert not torch.equal(logits(model), within)
        assert method.last.density == 1.0
    assert torch.equal(logits(model), within)


def test_refusals(make_recurrent: MakeRecurrent, make_host: Callable[..., PreTrainedModel]) -> None:
    with pytest.raises(HostError, match="'olmoe' is no depth-recurrent host"):
        routelab.attach(make_host("olmoe"), CONFIG)
    model = make_recurrent()
    with pytest.raises(BackendError, match="no backend 'gathre'; did you mean 'gather'"):
        routelab.attach(model, WISEConfig(backend="gathre"))
    assert isinstance(model.core_attention, FullCoreAttention)
    routelab.attach(model, CONFIG)
    with pytest.raises(ConflictError, match="core attention"):
        routelab.attach(model, WISEConfig(condition="static"))
    with pytest.raises(ConfigError, match="block_size"):
        WISEConfig(block_size=20)
    output = model(IDS, num_steps=6, use_cache=True)
    with pytest.raises(HostError, match="num_steps"):
        model(IDS[:, :1], num_steps=5, cache=output.cache)


@torch.no_grad()
def test_generate_with_it_attached(make_recurrent: MakeRecurrent) -> None:
    model = routelab.attach(make_recurrent(), CONFIG)
    call = {"num_steps": 6, "max_new_tokens": 5, "eos_token_id": None, "pad_token_id": 0}
    greedy = model.generate(IDS, do_sample=False, **call)
    assert greedy.shape == (1, 38)
    torch.manual_seed(0)
    assert model.generate(IDS, do_sample=True, num_return_sequences=2, **call).shape == (2, 38)


def test_gradients_flow_through_the_late_steps(make_recurrent: MakeRecurrent) -> None:
    """Nothing is trained, but what stands before the model (a prompt embedding, say) may be."""
    model = routelab.attach(make_recurrent(), CONFIG)
    state = torch.randn(1, 33, 32, requires_grad=True)
    model(IDS, num_steps=6, initial_state=state).logits.square().mean().backward()
    assert state.grad is not None
    assert state.grad.isfinite().all()
    assert state.grad.abs().max() > 0
