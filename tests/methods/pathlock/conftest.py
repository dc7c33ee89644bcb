"""Tiny random dense hosts of many families, and the minis' tokenizer under the templates of several."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import transformers
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.hosts.minis.loader import TOKENIZER

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "cohere": ("Cohere", {}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {}),
    "gemma3_text": ("Gemma3", {}),
    "glm4": ("Glm4", {}),
    "gpt_neox": ("GPTNeoX", {}),
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {}),
    "olmo2": ("Olmo2", {}),
    "phi": ("Phi", {"num_key_value_heads": 4}),
    "phi3": ("Phi3", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "starcoder2": ("Starcoder2", {}),
}
CHATML = None  # the minis' own
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{% if loop.first and m['role'] == 'system' %}Cutting Knowledge Date: December 2023\n\n{% endif %}"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% set system = namespace(text='') %}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{% set system.text = m['content'] ~ '\n\n' %}"
    "{% elif m['role'] == 'user' %} [INST] {{ system.text }}{{ m['content'] }} [/INST]{% set system.text = '' %}"
    "{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}"
)
QWEN3 = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "qwen3": QWEN3}
SPECIAL = ["<s>", "</s>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]

MakeDense = Callable[..., PreTrainedModel]
MakeTokenizer = Callable[..., PreTrainedTokenizerBase]


@pytest.fixture(scope="session")
def base_tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(TOKENIZER)


@pytest.fixture
def tokenizer(base_tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    return copy.deepcopy(base_tokenizer)


@pytest.fixture
def make_tokenizer(base_tokenizer: PreTrainedTokenizerBase) -> MakeTokenizer:
    """Factory ``make_tokenizer(template)``: the minis' tokenizer under a template of :data:`TEMPLATES`, or none."""

    def make(template: str | None) -> PreTrainedTokenizerBase:
        tokenizer = copy.deepcopy(base_tokenizer)
        tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
        if template in {"llama3", "mistral"}:
            tokenizer.bos_token = "<|begin_of_text|>" if template == "llama3" else "<s>"
            tokenizer.eos_token = "<|eot_id|>" if template == "llama3" else "</s>"
        if template is None:
            tokenizer.chat_template = None
        elif TEMPLATES[template] is not None:
            tokenizer.chat_template = TEMPLATES[template]
        return tokenizer

    return make


@pytest.fixture
def make_dense(base_tokenizer: PreTrainedTokenizerBase) -> MakeDense:
    """Factory ``make_dense(family, seed=0, **config)``: a tiny random dense host in eval mode, float32."""

    def make(family: str, seed: int = 0, **config: object) -> PreTrainedModel:
        name, own = FAMILIES[family]
        kind = "Gemma3TextConfig" if family == "gemma3_text" else f"{name}Config"
        torch.manual_seed(seed)
        settings = {**SIZES, "vocab_size": len(base_tokenizer), **own, **config}
        model: PreTrainedModel = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, kind)(**settings))
        return model.eval()

    return make


@pytest.fixture
def locked(
    make_dense: MakeDense, tokenizer: PreTrainedTokenizerBase, tell_apart: Callable[[PreTrainedModel], None]
) -> PreTrainedModel:
    """A path-locked tiny Qwen3 whose experts differ."""
    model = routelab.attach(make_dense("qwen3"), routelab.PathLockConfig(), tokenizer=tokenizer)
    tell_apart(model)
    return model


@pytest.fixture
def tell_apart() -> Callable[[PreTrainedModel], None]:
    """Change the think experts of a model, so that a token in the wrong one shows."""

    def change(model: PreTrainedModel) -> None:
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for _, mlp in routelab.attached(model)[0].mlps():
                for parameter in mlp.think.parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)

    return change


@pytest.fixture
def chat() -> Callable[..., str]:
    """``chat(tokenizer, *turns)``: turns that alternate between user and assistant, rendered with the generation
    prompt, or without it for ``answer=True``."""

    def render(tokenizer: PreTrainedTokenizerBase, *turns: str, answer: bool = False) -> str:
        messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=not answer))

    return render


@pytest.fixture
def encode() -> Callable[..., dict[str, torch.Tensor]]:
    """``encode(tokenizer, *texts, side="left")``: the ids and mask of rendered texts, padded."""

    def encoded(tokenizer: PreTrainedTokenizerBase, *texts: str, side: str = "left") -> dict[str, torch.Tensor]:
        tokenizer.padding_side = side
        batch = tokenizer(list(texts), return_tensors="pt", padding=True, add_special_tokens=False)
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}

    return encoded
