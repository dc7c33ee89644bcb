"""Estimates against counts by hand, and against the one figure that a paper gives."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, OlmoeConfig, OlmoeForCausalLM, Qwen3Config, Qwen3ForCausalLM

from routelab.dryrun import dry_run
from routelab.dryrun_costs import PEAK, UTILISATION, active_parameters, flops_per_token, hours
from routelab.recipe import Recipe, load_recipe

SIZES = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}
HEAD = 11 * 8


def test_a_token_meets_its_experts_and_the_head_alone() -> None:
    with torch.device("meta"):
        dense = LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))
        sparse = OlmoeForCausalLM(OlmoeConfig(**SIZES, num_experts=8, num_experts_per_tok=2, tie_word_embeddings=False))
    attention, norms = 4 * 8 * 8, 2 * 8
    layer = attention + norms + 3 * 8 * 6
    assert active_parameters(dense) == HEAD + 2 * layer + 8
    experts = sum(p.numel() for name, p in sparse.named_parameters() if ".experts." in name)
    every = sum(p.numel() for p in sparse.parameters())
    assert active_parameters(sparse) == every - HEAD - experts * 6 / 8
    routers = {id(layer.mlp.gate.weight) for layer in sparse.model.layers}
    assert active_parameters(sparse, routers) == 2 * 8 * 8


def test_operations_of_a_token() -> None:
    with torch.device("meta"):
        dense = LlamaForCausalLM(LlamaConfig(**SIZES))
    active = active_parameters(dense)
    attention = 2 * 2 * 8 * 16
    assert flops_per_token(dense, trained=0, length=16, recomputed=False) == 4 * active + 3 * attention
    assert flops_per_token(dense, trained=active, length=16, recomputed=True) == 8 * active + 4 * attention


def test_attention_is_as_wide_as_its_heads() -> None:
    """Qwen3's heads are wider together than its hidden states; a layer without a softmax does not look back."""
    with torch.device("meta"):
        dense = Qwen3ForCausalLM(Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=10))
    grown = [flops_per_token(dense, trained=0, length=length, recomputed=False) for length in (16, 17)]
    assert grown[1] - grown[0] == 3 * 2 * 2 * (2 * 10)
    dense.config.layer_types = ["linear_attention", "full_attention"]
    grown = [flops_per_token(dense, trained=0, length=length, recomputed=False) for length in (16, 17)]
    assert grown[1] - grown[0] == 3 * 2 * 1 * (2 * 10)


def test_hours() -> None:
    assert hours(PEAK["A100"] * UTILISATION * 3600 * 2) == "2.0 h A100, 0.6 h H100"
    assert hours(1e12).startswith("under 0.1 min A100")


def test_the_papers_four_gpu_hours_are_within_a_factor_of_two() -> None:
    """arXiv 2609.20974, section 4.1: a single OLMoE run takes about 4 hours of A100."""
    recipe = load_recipe("paper/aar-olmoe")
    assert isinstance(recipe, Recipe)
    check = dry_run(recipe)
    assert check.tokens == 234_836 * 512
    flops = check.tokens * check.arms[0].flops_per_token
    assert flops / (PEAK["A100"] * UTILISATION) / 3600 == pytest.approx(4, rel=0.5)
