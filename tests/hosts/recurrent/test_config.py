"""Shapes: what the published files say, what follows, what is refused; and the real sizes."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import AutoConfig

from routelab.errors import ConfigError
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM

#: The published configuration of Huginn-0125, as far as it says anything of the shape.
HUGINN = {
    "architecture_class_name": "RecurrentGPT",
    "auto_map": {
        "AutoConfig": "raven_config_minimal.RavenConfig",
        "AutoModelForCausalLM": "raven_modeling_minimal.RavenForCausalLM",
    },
    "block_size": 4096,
    "head_dim": 96,
    "init_values": {"embed_scale": 72.6636084983398, "std": 0.008703882797784892},
    "intermediate_size": 17920,
    "mean_backprop_depth": 8,
    "mean_recurrence": 32,
    "model_type": "huginn_raven",
    "n_embd": 5280,
    "n_heads": 55,
    "n_layers": 8,
    "n_layers_in_coda": 2,
    "n_layers_in_prelude": 2,
    "n_layers_in_recurrent_block": 4,
    "norm_eps": 1e-06,
    "num_key_value_heads": 55,
    "padded_vocab_size": 65536,
    "padding_multiple": 4096,
    "qk_bias": True,
    "rope_base": 50000,
    "tie_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 65536,
}

#: A recurrent Llama-3.2-1B: the file is Huginn's with these fields changed.
LLAMA = {
    **HUGINN,
    "auto_map": {"AutoModelForCausalLM": "raven_modeling_minimal_llama.RavenForCausalLM"},
    "init_values": {"embed_scale": 1.0, "std": 0.008703882797784892},
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "n_embd": 2048,
    "n_heads": 32,
    "n_layers_in_coda": 4,
    "n_layers_in_prelude": 4,
    "n_layers_in_recurrent_block": 6,
    "norm_eps": 1e-05,
    "num_key_value_heads": 8,
    "padded_vocab_size": 128256,
    "qk_bias": False,
    "rope_base": 500000.0,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_embeddings": False,
    "vocab_size": 128256,
}


@pytest.mark.parametrize("fields", [HUGINN, LLAMA], ids=["huginn", "llama"])
def test_real_sizes(fields: dict) -> None:
    config = RecurrentConfig(**fields)
    with torch.device("meta"):
        model = RecurrentForCausalLM(config)
    d, f = fields["n_embd"], fields["intermediate_size"]
    heads = fields["n_heads"] + 2 * fields["num_key_value_heads"]
    huginn = fields is HUGINN
    block = heads * (d // fields["n_heads"]) * d + d * d + 3 * d * f + (4 * d + 2 * d if huginn else 2 * d)
    blocks = sum(fields[f"n_layers_in_{part}"] for part in ("prelude", "recurrent_block", "coda"))
    embeddings = fields["vocab_size"] * d * (1 if huginn else 2)
    assert model.num_parameters() == blocks * block + 2 * d * d + d + embeddings
    assert model.num_parameters() == (3_564_976_800 if huginn else 1_385_228_288)
    core = sum(parameter.numel() for parameter in model.transformer.core_block.parameters())
    assert not huginn or core == 1_581_592_320  # "1,581m parameters in recurrent block"
    assert model(torch.zeros(1, 3, dtype=torch.long, device="meta"), num_steps=2).logits.shape[-1] == config.vocab_size


def test_huginn_follows_from_its_defaults() -> None:
    published, default = RecurrentConfig(**HUGINN), RecurrentConfig()
    for field in ("embed_scale", "initial_std", "qk_bias", "tie_embeddings", "rope_theta", "architecture", "n_embd"):
        value = getattr(default, field)
        assert getattr(published, field) == (pytest.approx(value) if isinstance(value, float) else value)
    assert default.head_dim == 96
    assert default.num_hidden_layers == 8


def test_llama_is_told_by_its_module() -> None:
    config = RecurrentConfig(**LLAMA)
    assert config.architecture == "llama"
    assert not config.qk_bias
    assert not config.tie_embeddings
    assert config.embed_scale == 1.0
    assert config.initial_std == pytest.approx(0.0087038828)
    assert config.block_size == config.max_position_embeddings == 131072
    assert config.rope_parameters["rope_type"] == "llama3"


def test_vocabulary_is_padded() -> None:
    config = RecurrentConfig(vocab_size=130, padding_multiple=64)
    assert config.vocab_size == config.padded_vocab_size == 192
    assert RecurrentConfig(vocab_size=130, padding_multiple=64, padded_vocab_size=130).vocab_size == 130


def test_a_resized_vocabulary_is_kept(make, tmp_path) -> None:
    model = make("huginn", padding_multiple=64)
    model.resize_token_embeddings(70)
    ids = torch.randint(70, (1, 5))
    assert model(ids, labels=ids).loss.isfinite()
    model.save_pretrained(tmp_path)
    assert torch.equal(RecurrentForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)


@pytest.mark.parametrize("fields", [HUGINN, LLAMA, {"architecture": "llama"}], ids=["huginn", "llama", "bare"])
def test_round_trip(fields: dict, tmp_path) -> None:
    config = RecurrentConfig(**fields)
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert type(again) is RecurrentConfig
    assert {**again.to_dict(), "_name_or_path": ""} == config.to_dict()
    assert math.isclose(again.initial_std, config.initial_std)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"architecture": "lama"}, "did you mean 'llama'"),
        ({"n_layers_in_recurrent_block": 0}, "n_layers_in_recurrent_block=0 is below 1"),
        ({"n_heads": 7}, "does not give 7 heads"),
        ({"n_embd": 60, "n_heads": 20}, "heads of an even size"),
        ({"architecture": "llama", "num_key_value_heads": 3}, "does not divide n_heads=55"),
        ({"num_key_value_heads": 5, "qk_bias": True}, "qk_bias"),
        ({"mean_recurrence": 0}, "mean_recurrence=0"),
        ({"rope_scaling": {"rope_type": "lama3", "factor": 2.0}}, "did you mean 'llama3'"),
    ],
)
def test_bad_values_are_refused(fields: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RecurrentConfig(**fields)
