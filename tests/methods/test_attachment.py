"""The contract: attach, attached, detach."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

import routelab
from routelab.errors import ConfigError, ConflictError, HostError

MakeHost = Callable[..., PreTrainedModel]
CONFIGS = [routelab.RoutingOnlyConfig(), routelab.AARConfig(layers="all", window=5)]
IDS = torch.arange(3, 19).reshape(2, 8)


@pytest.mark.parametrize("config", CONFIGS)
def test_detach_gives_the_host_back(make_host: MakeHost, family: str, config: object) -> None:
    """Bit-identical logits, keys, classes, flags and attention, also after the routers were trained."""
    model = make_host(family)
    model.model.embed_tokens.weight.requires_grad_(False)
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    classes = {name: type(module) for name, module in model.named_modules()}
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attention = model.config._attn_implementation
    with torch.no_grad():
        before = model(IDS).logits
        assert routelab.attach(model, config) is model
        for parameter in routelab.attached(model)[0].parameters():
            parameter.add_(1.0)
        assert not torch.equal(model(IDS).logits, before)
        assert routelab.detach(model) is model
        after = model(IDS).logits
    assert torch.equal(after, before)
    assert {name: type(module) for name, module in model.named_modules()} == classes
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == flags
    assert model.config._attn_implementation == attention
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert routelab.attached(model) == []
    assert not any(hook for module in model.modules() for hook in module._forward_pre_hooks.values())


def test_routing_only_changes_nothing_until_trained(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    with torch.no_grad():
        before = model(IDS).logits
        assert torch.equal(routelab.attach(model, routelab.RoutingOnlyConfig())(IDS).logits, before)


def test_exactly_the_routing_parameters_require_gradients(make_host: MakeHost, family: str) -> None:
    model = routelab.attach(make_host(family), routelab.AARConfig(layers="all", window=5))
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trainable == {name for name, _ in model.named_parameters() if ".gate." in name}
    assert len(list(routelab.attached(model)[0].parameters())) == len(trainable)


def test_summary_counts(make_host: MakeHost) -> None:
    model = routelab.attach(make_host("olmoe"), routelab.AARConfig(layers=[1, 3], window=6, gate_scale_init=0.0))
    summary = routelab.attached(model)[0].summary()
    new = 2 * (8 * ((6 + 4) + (32 + 6) + (32 + 4)) + 1)
    assert summary.layers == (1, 3)
    assert summary.modules == ("model.layers.1.mlp.gate", "model.layers.3.mlp.gate")
    assert (summary.new_parameters, summary.trainable_parameters) == (new, new + 4 * 8 * 32)
    assert "layers 1, 3" in repr(routelab.attached(model)[0])


def test_two_methods_with_one_part_are_refused_by_name(make_host: MakeHost) -> None:
    model = routelab.attach(make_host("olmoe"), routelab.RoutingOnlyConfig())
    with pytest.raises(ConflictError, match=r"'aar' cannot join 'routing_only'.*layers\.0\.router"):
        routelab.attach(model, routelab.AARConfig(layers="all"))
    assert [method.name for method in routelab.attached(model)] == ["routing_only"]


def test_a_failed_attach_leaves_no_trace(make_host: MakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_host("olmoe")
    before = model(IDS).logits

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("halfway")

    monkeypatch.setattr("routelab.methods.aar.method.specialise", fail)
    with pytest.raises(RuntimeError, match="halfway"):
        routelab.attach(model, routelab.AARConfig(layers="all"))
    assert model.config._attn_implementation == "sdpa"
    assert not hasattr(model.model.layers[0].self_attn, "routelab_window_record")
    assert routelab.attached(model) == []
    assert torch.equal(model(IDS).logits, before)


def test_misuse_is_named(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    with pytest.raises(HostError, match="no routing method is attached"):
        routelab.detach(model)
    with pytest.raises(ConfigError, match="AARConfig"):
        routelab.attach(model, {"window": 40})


def test_same_seed_same_start(make_host: MakeHost) -> None:
    starts = [
        routelab.attached(routelab.attach(make_host("olmoe"), routelab.AARConfig(layers="all", seed=seed)))[0]
        for seed in (3, 3, 4)
    ]
    states = [method.state_dict() for method in starts]
    name = "layers.0.attention_router.A.time"
    assert torch.equal(states[0][name], states[1][name])
    assert not torch.equal(states[0][name], states[2][name])
    assert float(states[0][name].std()) == pytest.approx(0.02, rel=0.2)
