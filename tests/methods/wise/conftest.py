"""Tiny random depth-recurrent hosts of both architectures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM

SIZES = {
    "n_embd": 32,
    "n_heads": 4,
    "intermediate_size": 48,
    "n_layers_in_prelude": 1,
    "n_layers_in_recurrent_block": 2,
    "n_layers_in_coda": 1,
    "vocab_size": 64,
    "padding_multiple": 64,
    "block_size": 4096,
    "mean_recurrence": 8,
}


@pytest.fixture
def make_recurrent() -> Callable[..., RecurrentForCausalLM]:
    """Factory ``make_recurrent(architecture, **config)``: eval mode, float32, attention sharp enough to be sparse."""

    def make(architecture: str = "huginn", **config: object) -> RecurrentForCausalLM:
        heads = {"num_key_value_heads": 2} if architecture == "llama" else {}
        torch.manual_seed(0)
        model = RecurrentForCausalLM(RecurrentConfig(**{**SIZES, **heads, "architecture": architecture, **config}))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("Wqkv.weight"):
                    parameter.mul_(3.0)
        return model.eval()

    return make


@pytest.fixture(params=["huginn", "llama"])
def recurrent(
    request: pytest.FixtureRequest, make_recurrent: Callable[..., RecurrentForCausalLM]
) -> RecurrentForCausalLM:
    """Both architectures in turn."""
    return make_recurrent(request.param)
