"""Tiny recurrent models of both architectures, and the golden data of the public implementations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM

ARCHITECTURES = ("huginn", "llama")
SHAPE = {
    "n_embd": 32,
    "n_heads": 4,
    "intermediate_size": 48,
    "n_layers_in_prelude": 1,
    "n_layers_in_recurrent_block": 2,
    "n_layers_in_coda": 1,
    "vocab_size": 61,
    "padding_multiple": 1,
    "block_size": 64,
    "mean_recurrence": 4,
    "mean_backprop_depth": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny(architecture: str, seed: int = 0, **fields: Any) -> RecurrentForCausalLM:
    """A random model in eval mode, float32, whose every tensor matters."""
    torch.manual_seed(seed)
    heads = {"num_key_value_heads": 2} if architecture == "llama" else {}
    model = RecurrentForCausalLM(RecurrentConfig(**{**SHAPE, **heads, "architecture": architecture, **fields}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_f" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=0.2)
    return model.eval()


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make() -> Callable[..., RecurrentForCausalLM]:
    """Factory ``make(architecture, seed=0, **config)``."""
    return tiny


@pytest.fixture
def model(architecture: str) -> RecurrentForCausalLM:
    return tiny(architecture)


class Golden(NamedTuple):
    config: dict[str, Any]
    weights: dict[str, Tensor]
    expected: dict[str, Tensor]
    folder: Path


@pytest.fixture(params=["huginn_tiny", "recurrent_llama_tiny"])
def golden(request: pytest.FixtureRequest, golden_root: Path) -> Golden:
    """Configuration, weights and outputs of a public implementation; skipped where the data is absent."""
    folder = golden_root / request.param
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Golden(config, load_file(folder / "weights.safetensors"), load_file(folder / "expected.safetensors"), folder)
