"""A trace shows what the routers did, and leaves the model as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel

import routelab
from routelab.errors import EvaluationError, LayerError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.study.trace import trace

TEXT = "Tom has 3 apples."


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TOKENIZER)


@pytest.fixture
def model(make_host: Callable[..., PreTrainedModel], family: str, tokenizer: Any) -> PreTrainedModel:
    return make_host(family, vocab_size=len(tokenizer))


def test_experts_and_first_token_mass_match_the_model(model: PreTrainedModel, tokenizer: Any, family: str) -> None:
    found = trace(model, tokenizer, TEXT)
    model.set_attn_implementation("eager")
    ids = tokenizer(TEXT, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        output = model(input_ids=ids, output_attentions=True, output_router_logits=True)
    masses = iter(weights[0].mean(0)[:, 0] for weights in output.attentions if weights is not None)
    seen = 0
    for layer, logits in zip(found.layers, output.router_logits, strict=True):
        steps = [step for step in found.steps if step.layer == layer]
        assert [step.position for step in steps] == list(range(ids.shape[1]))
        wanted = logits.topk(3).indices.tolist()
        assert [sorted(step.experts) for step in steps] == [sorted(row) for row in wanted]
        if steps[0].first_token is not None:
            seen += 1
            got = torch.tensor([step.first_token for step in steps])
            torch.testing.assert_close(got, next(masses), atol=1e-4, rtol=0)
    assert seen == (2 if family == "qwen3_5_moe_text" else 4)


def test_gates_appear_where_the_method_is(model: PreTrainedModel, tokenizer: Any) -> None:
    routelab.attach(model, routelab.AARConfig(layers=[3], window=4))
    before = model.config._attn_implementation
    ids = tokenizer(TEXT, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        found = trace(model, tokenizer, TEXT)
        again = model(input_ids=ids).logits
    assert {step.layer for step in found.steps if step.gates} == {3}
    gates = [step.gates for step in found.steps if step.layer == 3]
    assert all(set(gate) == {"time", "frequency"} and all(0 < value < 1 for value in gate.values()) for gate in gates)
    assert torch.equal(logits, again)
    assert model.config._attn_implementation == before
    assert found.methods[0].startswith("aar: layers 3")


def test_only_some_layers(make_host: Callable[..., PreTrainedModel], tokenizer: Any) -> None:
    found = trace(make_host("olmoe", vocab_size=len(tokenizer)), tokenizer, TEXT)
    assert {step.layer for step in found.only([1]).steps} == {1}
    with pytest.raises(LayerError, match=r"layers \[7\] have no router here; layers that have one: \[0, 1, 2, 3\]"):
        found.only([7])


def test_empty_prompt_is_refused(make_host: Callable[..., PreTrainedModel], tokenizer: Any) -> None:
    with pytest.raises(EvaluationError, match="no token"):
        trace(make_host("olmoe", vocab_size=len(tokenizer)), tokenizer, "")
