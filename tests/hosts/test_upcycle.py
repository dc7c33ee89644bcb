from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from routelab.errors import ConfigError, HostError
from routelab.hosts.upcycle import upcycle

SHAPE = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}


def llama(**changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes})).eval()


def mistral(**changes: object) -> MistralForCausalLM:
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**{**SHAPE, **changes})).eval()


def ids(length: int = 13) -> torch.Tensor:
    return torch.randint(0, SHAPE["vocab_size"], (2, length), generator=torch.Generator().manual_seed(1))


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(ids()).logits


@pytest.mark.parametrize(
    "dense",
    [
        llama(),
        llama(tie_word_embeddings=True, head_dim=16, rms_norm_eps=1e-5),
        llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}),
        mistral(sliding_window=4),
        mistral(sliding_window=None, hidden_act="gelu"),
    ],
    ids=["llama", "llama-tied", "llama-rope", "mistral-window", "mistral-gelu"],
)
def test_a_split_with_all_experts_and_equal_weights_is_the_dense_model(dense: PreTrainedModel) -> None:
    moe = upcycle(dense, experts=4, top_k=4, router_init="zeros")
    torch.testing.assert_close(logits(moe), logits(dense), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_copies_are_the_dense_model_under_any_router(top_k: int) -> None:
    dense = llama()
    moe = upcycle(dense, experts=4, top_k=top_k, method="copy")
    assert moe.config.intermediate_size == SHAPE["intermediate_size"]
    torch.testing.assert_close(logits(moe), logits(dense), atol=2e-5, rtol=1e-5)


def test_with_fewer_experts_the_router_matters() -> None:
    dense = llama()
    random = [logits(upcycle(dense, experts=4, top_k=2, router_init="random", seed=s)) for s in (0, 1)]
    assert (random[0] - logits(dense)).abs().max() > 1e-2
    assert (random[0] - random[1]).abs().max() > 1e-2


def test_the_dense_model_is_left_alone_and_shares_nothing() -> None:
    dense = llama(tie_word_embeddings=True)
    before = logits(dense)
    moe = upcycle(dense, experts=4, top_k=2)
    with torch.no_grad():
        for parameter in moe.parameters():
            parameter.zero_()
    assert torch.equal(logits(dense), before)


def test_it_is_deterministic_and_draws_nothing_from_the_global_generator() -> None:
    dense = llama()
    torch.manual_seed(7)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    first = upcycle(dense, experts=4, top_k=2, seed=5, router_init="random").state_dict()
    assert torch.equal(torch.rand(3), drawn)
    second = upcycle(dense, experts=4, top_k=2, seed=5, router_init="random").state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("tied", [True, False])
def test_it_saves_as_an_ordinary_checkpoint(tmp_path: Path, tied: bool) -> None:
    moe = upcycle(llama(tie_word_embeddings=tied), experts=4, top_k=2)
    assert (moe.lm_head.weight is moe.model.embed_tokens.weight) == tied
    moe.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, MixtralForCausalLM)
    assert loaded.config.num_local_experts == 4
    assert torch.equal(logits(loaded), logits(moe))


def test_dtype_mode_and_generation_settings_come_along() -> None:
    dense = llama().to(torch.bfloat16)
    dense.generation_config.eos_token_id = 7
    moe = upcycle(dense, experts=3, top_k=2)
    assert {parameter.dtype for parameter in moe.parameters()} == {torch.bfloat16}
    assert not moe.training
    assert moe.generation_config.eos_token_id == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"experts": 5, "top_k": 2}, "48 neurons cannot be split into 5"),
        ({"experts": 1, "top_k": 1}, "at least 2"),
        ({"experts": 4, "top_k": 0}, r"top_k=0 is not in 1\.\.4"),
        ({"experts": 4, "top_k": 5}, r"top_k=5 is not in 1\.\.4"),
        ({"experts": 4, "top_k": 2, "method": "spilt"}, "did you mean 'split'"),
        ({"experts": 4, "top_k": 2, "router_init": "zero"}, "did you mean 'zeros'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        upcycle(llama(), **arguments)


def test_other_families_are_refused_by_name() -> None:
    qwen = Qwen2ForCausalLM(Qwen2Config(**SHAPE))
    with pytest.raises(HostError, match=r"Qwen2ForCausalLM .*'qwen2'.*LlamaForCausalLM and MistralForCausalLM"):
        upcycle(qwen, experts=4, top_k=2)
    with pytest.raises(HostError, match="MixtralForCausalLM"):
        upcycle(upcycle(llama(), experts=4, top_k=2), experts=4, top_k=2)


@pytest.mark.parametrize("bias", ["attention_bias", "mlp_bias"])
def test_biases_are_refused(bias: str) -> None:
    with pytest.raises(HostError, match=r"\.bias and \d+ more are biases"):
        upcycle(llama(**{bias: True}), experts=4, top_k=2)
