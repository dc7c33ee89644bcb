"""A Llama made recurrent: what it computes before training, and that it can be trained."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from routelab.errors import ConfigError, HostError, MissingPackageError
from routelab.hosts.recurrent import RecurrentForCausalLM, convert
from routelab.hosts.smollm2 import load_smollm2

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def llama(**changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes})).eval()


def chosen(model: LlamaForCausalLM, layers: list[int]) -> LlamaForCausalLM:
    """The Llama of these layers alone."""
    shorter = copy.deepcopy(model)
    shorter.model.layers = torch.nn.ModuleList(copy.deepcopy(model.model.layers[layer]) for layer in layers)
    for index, layer in enumerate(shorter.model.layers):
        layer.self_attn.layer_idx = index
    shorter.config.num_hidden_layers = len(layers)
    return shorter


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(61, (2, 20), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}, {"rope_parameters": LLAMA3}])
def test_one_pass_equals_the_llama_of_the_chosen_layers(changes: dict, ids: Tensor) -> None:
    model = llama(**changes)
    recurrent = convert(model, prelude=[0, 1], core=[3, 4], coda=[5])
    expected = chosen(model, [0, 1, 3, 4, 5])(ids).logits
    assert (model(ids).logits - expected).abs().max() > 0.1
    torch.testing.assert_close(recurrent(ids, num_steps=1).logits, expected, atol=1e-4, rtol=1e-4)
    assert (recurrent.lm_head.weight is recurrent.transformer.wte.weight) == changes.get("tie_word_embeddings", False)


def test_all_layers_in_order_are_the_llama_at_every_depth_from_every_state(ids: Tensor) -> None:
    model = llama()
    recurrent = convert(model, prelude=[0, 1], core=[2, 3], coda=[4, 5])
    expected = model(ids).logits
    for given in ({"num_steps": 1}, {"num_steps": 7}, {"num_steps": 2, "seed": 5}):
        torch.testing.assert_close(recurrent(ids, **given).logits, expected, atol=1e-4, rtol=1e-4)
    prompt = ids[:, :6]
    generated = recurrent.generate(prompt, num_steps=2, max_new_tokens=8, do_sample=False)
    assert torch.equal(generated, model.generate(prompt, max_new_tokens=8, do_sample=False))


def test_the_llama_is_not_touched_and_shares_nothing(ids: Tensor) -> None:
    model = llama()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    recurrent = convert(model, prelude=[0], core=[2], coda=[5]).train()
    with torch.no_grad():
        for parameter in recurrent.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_training_makes_the_state_matter(ids: Tensor) -> None:
    recurrent = convert(llama(), prelude=[0, 1], core=[2, 3], coda=[4, 5], mean_recurrence=3, mean_backprop_depth=3)
    optimizer = torch.optim.Adam(recurrent.parameters(), lr=2e-3)
    recurrent.train()
    losses = []
    for _ in range(12):
        loss = recurrent(ids, labels=ids, num_steps=3, seed=0).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
    assert recurrent.transformer.adapter.weight[:, :32].abs().max() > 1e-3
    one, three = (recurrent.eval()(ids, num_steps=steps).logits for steps in (1, 3))
    assert (one - three).abs().max() > 1e-2


def test_it_saves_as_a_recurrent_llama(ids: Tensor, tmp_path) -> None:
    recurrent = convert(llama(rope_parameters=LLAMA3), prelude=[0], core=[1, 2], coda=[5]).bfloat16()
    recurrent.save_pretrained(tmp_path)
    again = RecurrentForCausalLM.from_pretrained(tmp_path)
    assert again.config.architecture == "llama"
    assert again.dtype == torch.bfloat16
    assert torch.equal(again(ids).logits, recurrent(ids).logits)


def test_bad_requests_are_refused() -> None:
    model = llama()
    with pytest.raises(ConfigError, match="coda names layer 6; this model has layers 0 to 5"):
        convert(model, prelude=[0], core=[1], coda=[6])
    with pytest.raises(ConfigError, match="core names no layer"):
        convert(model, prelude=[0], core=[], coda=[5])
    with pytest.raises(HostError, match="is a bias"):
        convert(llama(attention_bias=True), prelude=[0], core=[1], coda=[2])
    with pytest.raises(HostError, match="4 heads of 16 are not its width 32"):
        convert(llama(head_dim=16), prelude=[0], core=[1], coda=[2])
    mistral = MistralForCausalLM(MistralConfig(**{**SHAPE, "num_hidden_layers": 1}))
    with pytest.raises(HostError, match="MistralForCausalLM"):
        convert(mistral, prelude=[], core=[0], coda=[])


def test_smollm2() -> None:
    try:
        model, tokenizer = load_smollm2()
    except MissingPackageError as error:
        pytest.skip(str(error))
    recurrent = convert(model, prelude=range(10), core=range(10, 20), coda=range(20, 30))
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        expected = model(ids).logits
        found = recurrent(ids, num_steps=2).logits
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-3)
