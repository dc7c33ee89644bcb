"""Parameter counts at the paper's sizes, and the real SmolLM2 at the start."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

import routelab
from routelab.errors import MissingPackageError
from routelab.hosts.smollm2 import smollm2_directory


def test_qwen3_4b_has_two_thirds_more(tokenizer: PreTrainedTokenizerBase) -> None:
    """1.67 times the parameters, as many active ones as the host (arXiv 2604.27201, table 11)."""
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    counts = routelab.attached(model)[0].parameter_counts()
    assert counts == {"dense": 4_022_468_096, "total": 6_712_065_536, "active": 4_022_468_096}
    assert counts["total"] / counts["dense"] == pytest.approx(1.67, abs=0.005)


@torch.no_grad()
def test_smollm2_starts_as_itself() -> None:
    """Bit-identical logits and 64 greedy tokens in both modes."""
    try:
        smollm2_directory()
    except MissingPackageError as error:
        pytest.skip(str(error))
    model, tokenizer = routelab.load_host("smollm2-135m")
    model.eval()
    inputs = []
    for word in ("/no_think", "/think"):
        chat = [{"role": "user", "content": f"What is the capital of France? {word}"}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        inputs.append(tokenizer(text, return_tensors="pt", add_special_tokens=False))
    options = {"max_new_tokens": 64, "do_sample": False}
    before = [(model(**batch).logits, model.generate(**batch, **options)) for batch in inputs]
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    assert [routelab.resolve_modes(batch["input_ids"], tokenizer).item() for batch in inputs] == [0, 1]
    for batch, (logits, generated) in zip(inputs, before, strict=True):
        assert torch.equal(model(**batch).logits, logits)
        assert torch.equal(model.generate(**batch, **options), generated)
        assert "Paris" in tokenizer.decode(generated[0])
