"""The shapes of the minis and how each is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from feed import Feed
from hops import HopFeed, set_depth
from measure import measure
from measure_hops import measure_hops
from transformers import OlmoeConfig, OlmoeForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, Qwen3Config
from transformers import Qwen3ForCausalLM as Qwen3

from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM


@dataclass(frozen=True)
class Mini:
    """``build`` makes the untrained model; the learning rate falls linearly to zero over the last ``decay`` steps.

    ``feed`` makes the training stream, ``before`` runs ahead of every step, ``measure`` says what is logged of the
    model on held-out rows.
    """

    build: Callable[[PreTrainedTokenizerBase], PreTrainedModel]
    lr: float
    steps: int
    decay: int
    feed: Callable[..., Feed | HopFeed] = Feed
    before: Callable[..., None] | None = None
    measure: Callable[..., dict[str, float]] = measure


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


def mini_recurrent(tokenizer: PreTrainedTokenizerBase) -> RecurrentForCausalLM:
    """Huginn's blocks, one before, two in and one after the core, width 128; 1.1 million parameters."""
    config = RecurrentConfig(
        architecture="huginn",
        n_embd=128,
        n_heads=4,
        intermediate_size=384,
        n_layers_in_prelude=1,
        n_layers_in_recurrent_block=2,
        n_layers_in_coda=1,
        vocab_size=len(tokenizer),
        padding_multiple=64,
        block_size=16384,
        mean_recurrence=6,
        mean_backprop_depth=4,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return RecurrentForCausalLM(config)


MINIS = {
    # No decay: it would solve nearly everything and leave router training nothing.
    "mini-moe": Mini(mini_moe, lr=3e-3, steps=2200, decay=0),
    "mini-dense": Mini(mini_dense, lr=3e-3, steps=1950, decay=450),
    "mini-recurrent": Mini(
        mini_recurrent, lr=3e-3, steps=1950, decay=450, feed=HopFeed, before=set_depth, measure=measure_hops
    ),
}
