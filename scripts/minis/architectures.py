"""The shapes of the minis and how each is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from transformers import OlmoeConfig, OlmoeForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, Qwen3Config
from transformers import Qwen3ForCausalLM as Qwen3


@dataclass(frozen=True)
class Mini:
    """``build`` makes the untrained model; the learning rate falls linearly to zero over the last ``decay`` steps."""

    build: Callable[[PreTrainedTokenizerBase], PreTrainedModel]
    lr: float
    steps: int
    decay: int


def mini_moe(tokenizer: PreTrainedTokenizerBase) -> OlmoeForCausalLM:
    """Six layers of sixteen experts, two of them active per token; 2.9 million parameters."""
    config = OlmoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_experts=16,
        num_experts_per_tok=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        router_aux_loss_coef=0.01,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        use_cache=True,
    )
    return OlmoeForCausalLM(config)


def mini_dense(tokenizer: PreTrainedTokenizerBase) -> Qwen3:
    """Six layers, width 160, grouped-query attention; 2.4 million parameters."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=480,
        num_hidden_layers=6,
        num_attention_heads=5,
        num_key_value_heads=5,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        use_cache=True,
    )
    return Qwen3(config)


MINIS = {
    # No decay: it would solve nearly everything and leave router training nothing.
    "mini-moe": Mini(mini_moe, lr=3e-3, steps=2200, decay=0),
    "mini-dense": Mini(mini_dense, lr=3e-3, steps=2200, decay=500),
}
