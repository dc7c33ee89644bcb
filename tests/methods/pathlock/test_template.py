"""``enable_thinking`` and ``with_mode`` ask for a mode; two contrary ones are an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from transformers import AutoTokenizer

from routelab.errors import ConfigError, ModeError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.methods.pathlock.config import PathLockConfig
from routelab.methods.pathlock.control import ControlRule
from routelab.methods.pathlock.resolve import resolve_modes
from routelab.methods.pathlock.template import switchable, with_mode


def ask(tokenizer: Any, *contents: str, **options: Any) -> str:
    messages = [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))


@pytest.mark.parametrize("template", ["chatml", "llama3", "mistral", "qwen3"])
def test_enable_thinking(make_tokenizer: Any, template: str) -> None:
    own = make_tokenizer(template)
    tokenizer = switchable(own, PathLockConfig())
    assert switchable(tokenizer, PathLockConfig()).chat_template == tokenizer.chat_template
    assert ask(tokenizer, "a", "b", "c") == ask(own, "a", "b", "c")
    for thinking, word in ((True, "/think"), (False, "/no_think")):
        text = ask(tokenizer, "a /think", "b", "c", enable_thinking=thinking)
        assert text == ask(own, "a /think", "b", f"c {word}", enable_thinking=thinking)
        assert ask(tokenizer, f"a {word}", enable_thinking=thinking) == ask(own, f"a {word}", enable_thinking=thinking)
        assert resolve_modes([text], own).tolist() == [int(thinking)]
    with pytest.raises(TemplateError, match="ask for both modes"):
        ask(tokenizer, "a /think", enable_thinking=False)


def test_qwen3_understands_its_own_block(make_tokenizer: Any) -> None:
    own = make_tokenizer("qwen3")
    assert resolve_modes([ask(own, "a", enable_thinking=False)], own).tolist() == [0]
    with pytest.raises(ModeError, match=r"row 0 of 1: .*both modes"):
        resolve_modes([ask(own, "a /think", enable_thinking=False)], own)


def test_without_a_template_the_whole_prompt_is_read(make_tokenizer: Any) -> None:
    own = make_tokenizer(None)
    assert switchable(own, PathLockConfig()) is own
    assert resolve_modes(["a /think b", "x\n/no_think"], own).tolist() == [1, 0]
    with pytest.raises(ModeError, match="in the prompt"):
        resolve_modes(["nothing"], own)


def test_words_of_another_language_and_headers_by_name(make_tokenizer: Any) -> None:
    own = make_tokenizer(None)
    config = PathLockConfig(think="深思", no_think="直答", headers=["Q:", "A:"])
    assert resolve_modes(["Q: 请直答 A: 深思 Q: x A:"], own, config).tolist() == [0]


def test_registered_tokens_change_no_answer(make_tokenizer: Any, make_dense: Any) -> None:
    texts = [
        "a /think",
        "/think_hard /no_think",
        "</think> x /no_think",
        "请直接回答/no_think",
        "src/no_think/a.py /think",
    ]
    plain, registered = make_tokenizer("chatml"), make_tokenizer("chatml")
    registered.add_tokens(["/think", "/no_think"])
    prompts = [ask(plain, text) for text in texts]
    rows = [tokenizer(prompts, add_special_tokens=False)["input_ids"] for tokenizer in (plain, registered)]
    assert rows[0] != rows[1]
    assert resolve_modes(rows[0], plain).tolist() == resolve_modes(rows[1], registered).tolist() == [1, 0, 0, 0, 1]


def test_with_mode() -> None:
    chat = [
        {"role": "user", "content": "a /think"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert with_mode(chat, "no_think")[-1]["content"] == "c /no_think"
    assert with_mode(chat[:1], "think") == chat[:1]
    with pytest.raises(ModeError, match="leave one of them out"):
        with_mode(chat[:1], "no_think")
    with pytest.raises(ConfigError, match="no user turn"):
        with_mode(chat[1:2], "think")
    with pytest.raises(ConfigError, match="unknown mode"):
        with_mode(chat, "deep")


TOKENIZER_FOR_RULE = switchable(AutoTokenizer.from_pretrained(TOKENIZER), PathLockConfig())
PIECES = ["/think", "/no_think", "/", "<", ".", "-", "_", " ", "a", "9", "答", "think"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.booleans())
def test_the_template_knows_the_same_words_as_the_rule(content: str, thinking: bool) -> None:
    found = {word.mode for word in ControlRule(PathLockConfig(), None).decide(content).words}
    try:
        text = ask(TOKENIZER_FOR_RULE, content, enable_thinking=thinking)
    except TemplateError:
        assert int(not thinking) in found
        return
    assert int(not thinking) not in found
    added = "" if int(thinking) in found else f" {'/think' if thinking else '/no_think'}"
    assert f"{content}{added}<|im_end|>" in text


def test_bad_prompts(make_tokenizer: Any) -> None:
    import torch

    own = make_tokenizer("chatml")
    with pytest.raises(ConfigError, match="must be a list"):
        resolve_modes("a /think", own)
    with pytest.raises(ConfigError, match="has shape"):
        resolve_modes(torch.ones(1, 2, dtype=torch.long), own, attention_mask=torch.ones(1, 3))
