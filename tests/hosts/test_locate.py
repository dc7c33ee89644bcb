"""Roles are found in every family, and what is not supported is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

import routelab
from routelab.errors import HostError
from routelab.hosts.locate import FAMILIES, locate

MakeHost = Callable[..., PreTrainedModel]


def test_roles(make_host: MakeHost, family: str) -> None:
    host = locate(make_host(family))
    assert (host.model_type, host.num_experts, host.top_k, len(host.layers)) == (family, 8, 3, 4)
    assert [layer.index for layer in host.routed] == [0, 1, 2, 3]
    softmax = [layer.index for layer in host.layers if layer.attention is not None]
    assert softmax == ([1, 3] if family == "qwen3_5_moe_text" else [0, 1, 2, 3])
    assert host.renormalises is (family in {"mixtral", "qwen3_5_moe_text", "qwen3_moe"})


def test_dense_layers_of_a_mixed_host_have_no_router(make_host: MakeHost) -> None:
    host = locate(make_host("qwen2_moe", mlp_only_layers=[1]))
    assert [layer.index for layer in host.routed] == [0, 2, 3]


def test_a_dense_family_is_refused_by_name() -> None:
    dense = LlamaForCausalLM(
        LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    )
    with pytest.raises(HostError, match=r"'llama' has no router") as caught:
        routelab.attach(dense, routelab.AARConfig())
    assert all(family in str(caught.value) for family in FAMILIES)


def test_an_unknown_mixture_is_refused_by_name(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    model.config.model_type = "olmoe2"
    with pytest.raises(HostError, match=r"'olmoe2' is not a supported family; did you mean 'olmoe'\?"):
        locate(model)


def test_the_composite_and_the_bare_backbone_are_refused(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    with pytest.raises(HostError, match="ForCausalLM"):
        locate(model.model)
    model.config.model_type = "qwen3_5_moe"
    with pytest.raises(HostError, match="AutoModelForCausalLM"):
        locate(model)


def test_something_else_is_refused() -> None:
    with pytest.raises(HostError, match="not a transformers model"):
        locate(object())  # type: ignore[arg-type]
