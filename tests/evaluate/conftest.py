from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from routelab.hosts.minis.loader import TOKENIZER


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerBase:
    """The shared tokenizer of the minis."""
    return AutoTokenizer.from_pretrained(TOKENIZER, local_files_only=True)


@pytest.fixture
def make_model(
    tokenizer: PreTrainedTokenizerBase, make_host: Callable[..., PreTrainedModel]
) -> Callable[..., PreTrainedModel]:
    """Factory ``make_model(family)``: a tiny random model, ``"llama"`` or of a family of ``make_host``.

    Weights are large enough for argmaxes to be far apart and for texts to end at different lengths.
    """

    def make(family: str = "olmoe", seed: int = 0, **config: object) -> PreTrainedModel:
        sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 1024, "initializer_range": 0.3, **config}
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        if family != "llama":
            return make_host(family, seed, **sizes, **ends)
        torch.manual_seed(seed)
        small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
        return LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=2, **sizes, **ends)).eval()

    return make
