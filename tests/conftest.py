"""Tiny random hosts of every supported family, shared by the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoTokenizer,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PreTrainedModel,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from routelab.hosts.minis.loader import TOKENIZER

COMMON = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}

HOSTS: dict[str, Callable[..., PreTrainedModel]] = {
    "olmoe": lambda **kw: OlmoeForCausalLM(
        OlmoeConfig(**{**COMMON, "intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3, **kw})
    ),
    "qwen2_moe": lambda **kw: Qwen2MoeForCausalLM(
        Qwen2MoeConfig(
            **{
                **COMMON,
                "intermediate_size": 48,
                "moe_intermediate_size": 24,
                "shared_expert_intermediate_size": 24,
                "num_experts": 8,
                "num_experts_per_tok": 3,
                **kw,
            }
        )
    ),
    "qwen3_moe": lambda **kw: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **{
                **COMMON,
                "head_dim": 8,
                "intermediate_size": 48,
                "moe_intermediate_size": 24,
                "num_experts": 8,
                "num_experts_per_tok": 3,
                "norm_topk_prob": True,
                **kw,
            }
        )
    ),
    "qwen3_5_moe_text": lambda **kw: Qwen3_5MoeForCausalLM(
        Qwen3_5MoeTextConfig(
            **{
                **COMMON,
                "head_dim": 8,
                "moe_intermediate_size": 24,
                "shared_expert_intermediate_size": 24,
                "num_experts": 8,
                "num_experts_per_tok": 3,
                "linear_key_head_dim": 8,
                "linear_value_head_dim": 8,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "layer_types": ["linear_attention", "full_attention"] * 2,
                **kw,
            }
        )
    ),
    "mixtral": lambda **kw: MixtralForCausalLM(
        MixtralConfig(**{**COMMON, "intermediate_size": 24, "num_local_experts": 8, "num_experts_per_tok": 3, **kw})
    ),
}


@pytest.fixture
def make_host() -> Callable[..., PreTrainedModel]:
    """Factory ``make_host(family, seed=0, **config)``: a tiny random host in eval mode, float32."""

    def make(family: str, seed: int = 0, **config: object) -> PreTrainedModel:
        torch.manual_seed(seed)
        model = HOSTS[family](**config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("gate.weight"):
                    parameter.normal_(std=0.5)
        return model.eval()

    return make


@pytest.fixture(params=sorted(HOSTS))
def family(request: pytest.FixtureRequest) -> str:
    """Every supported family in turn."""
    return str(request.param)


def directory_of(variable: str, content: str) -> Path:
    """The directory that an environment variable names; the test is skipped where there is none."""
    root = os.environ.get(variable)
    if not root or not Path(root).is_dir():
        pytest.skip(f"{variable} does not name a directory of {content}")
    return Path(root)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The directory of real data; tests that need it are skipped where it is absent."""
    return directory_of("ROUTELAB_DATA", "data files")


@pytest.fixture(scope="session")
def golden_root() -> Path:
    """The directory of public implementations' outputs; tests that need it are skipped where it is absent."""
    return directory_of("ROUTELAB_GOLDEN", "golden data")


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random OLMoE with the minis' tokenizer, saved as an ordinary checkpoint directory."""
    folder = tmp_path_factory.mktemp("host")
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(0)
    config = OlmoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    OlmoeForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
