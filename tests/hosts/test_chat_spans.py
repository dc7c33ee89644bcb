"""Headers are found in the templates of several families, and split rendered chats."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from routelab.errors import HostError
from routelab.hosts.chat_spans import Headers, find_headers
from routelab.hosts.minis.loader import TOKENIZER

LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{% if loop.first and m['role'] == 'system' %}Cutting Knowledge Date: December 2023\n\n{% endif %}"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% elif m['role'] == 'assistant' %} {{ m['content'] }}</s>{% else %}{{ raise_exception('no system') }}{% endif %}"
    "{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
VICUNA = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }} {% elif m['role'] == 'user' %}"
    "USER: {{ m['content'] }} {% else %}ASSISTANT: {{ m['content'] }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}<|User|>{{ m['content'] }}"
    "{% else %}<|Assistant|></think>{{ m['content'] }}<|endoftext|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML = Headers("<|im_start|>assistant", ("<|im_start|>user", "<|im_start|>system"))
EXPECTED = {
    "own": (None, CHATML),
    "default system": (DEFAULT_SYSTEM, CHATML),
    "llama3": (
        LLAMA3,
        Headers(
            "<|start_header_id|>assistant<|end_header_id|>",
            ("<|start_header_id|>user<|end_header_id|>", "<|start_header_id|>system<|end_header_id|>"),
        ),
    ),
    "mistral": (MISTRAL, Headers("[/INST]", ("[INST]",))),
    "gemma": (
        GEMMA,
        Headers("<start_of_turn>model", ("<start_of_turn>user", "<start_of_turn>system")),
    ),
    "vicuna": (VICUNA, Headers("ASSISTANT:", ("USER:",), system_first=True)),
    "deepseek": (DEEPSEEK, Headers("<|Assistant|>", ("<|User|>",), system_first=True)),
    "zephyr": (ZEPHYR, Headers("<|assistant|>", ("<|user|>", "<|system|>"))),
}
ENDS = {"mistral": "</s>", "vicuna": "</s>", "deepseek": "<|endoftext|>"}


@pytest.fixture(scope="module")
def base() -> PreTrainedTokenizerBase:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    special = [
        "<s>",
        "</s>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<end_of_turn>",
        "<|User|>",
        "<|Assistant|>",
        "<think>",
        "</think>",
        "<start_of_turn>",
    ]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    return tokenizer


@pytest.mark.parametrize("bos", ["<s>", "<|im_start|>"])
@pytest.mark.parametrize("name", EXPECTED)
def test_headers(base: PreTrainedTokenizerBase, name: str, bos: str) -> None:
    template, expected = EXPECTED[name]
    tokenizer = copy.deepcopy(base)
    tokenizer.bos_token, tokenizer.eos_token = bos, ENDS.get(name, "<|im_end|>")
    tokenizer.chat_template = template or tokenizer.chat_template
    assert find_headers(tokenizer) == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_spans(base: PreTrainedTokenizerBase, name: str) -> None:
    tokenizer = copy.deepcopy(base)
    tokenizer.bos_token, tokenizer.eos_token = "<s>", ENDS.get(name, "<|im_end|>")
    tokenizer.chat_template = EXPECTED[name][0] or tokenizer.chat_template
    headers = find_headers(tokenizer)
    assert headers is not None
    turns = [("user", "one"), ("assistant", "two"), ("user", "three")]
    messages = [{"role": role, "content": content} for role, content in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    spans = headers.spans(text)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    for role, content in turns:
        at = text.index(content)
        assert [span.role for span in spans if span.start <= at and at + len(content) <= span.end] == [role]
    assert spans[-1].role == "assistant"


def test_without_headers_all_is_the_users() -> None:
    assert [(span.start, span.end, span.role) for span in CHATML.spans("plain")] == [(0, 5, "user")]


def test_no_template_has_no_headers(base: PreTrainedTokenizerBase) -> None:
    tokenizer = copy.deepcopy(base)
    tokenizer.chat_template = None
    assert find_headers(tokenizer) is None


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for m in messages %}{{ m['content'] }}\n{% endfor %}", "does not mark who speaks"),
        ("{{ raise_exception('never') }}", "cannot render"),
        ("{{ messages[0]['content'] }}", "drops a message"),
    ],
)
def test_templates_that_do_not_tell(base: PreTrainedTokenizerBase, template: str, said: str) -> None:
    tokenizer = copy.deepcopy(base)
    tokenizer.chat_template = template
    with pytest.raises(HostError, match=said):
        find_headers(tokenizer)
