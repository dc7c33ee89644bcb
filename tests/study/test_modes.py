"""The trace of a decision says what the rule says, word by word."""

from __future__ import annotations

import pytest
import torch

import routelab
from routelab.errors import HostError, ModeError
from routelab.evaluate import generate_answers
from routelab.evaluate.prompts import render
from routelab.hosts.minis import load_mini
from routelab.study.modes import trace_mode


@pytest.fixture(scope="module")
def locked():
    model, tokenizer = load_mini("mini-dense", dtype=torch.float32)
    return routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer), tokenizer


def test_the_decision_is_told_step_by_step(locked) -> None:
    model, tokenizer = locked
    chat = [
        {"role": "user", "content": "What does /think mean? /no_think"},
        {"role": "assistant", "content": "It means /think"},
        {"role": "user", "content": "And now?"},
    ]
    text = render(tokenizer, chat)
    found = trace_mode(model, text)
    assert found["mode"] == {"name": "no_think", "index": 0, "from": "word"}
    assert [(word["word"], word["counts"], word["won"]) for word in found["words"]] == [
        ("/think", True, False),
        ("/no_think", True, True),
        ("/think", False, False),
    ]
    assert text[found["header"] :].strip() == ""
    assert found["layers"] == list(range(6))


def test_a_prompt_without_a_word_and_a_plain_host_are_refused(locked) -> None:
    model, tokenizer = locked
    with pytest.raises(ModeError, match="names no mode"):
        trace_mode(model, render(tokenizer, [{"role": "user", "content": "Hi"}]))
    with pytest.raises(HostError, match="no path-locked experts"):
        trace_mode(load_mini("mini-dense")[0], "Hi /think")


def test_prompts_that_begin_alike_are_answered_each_in_its_own_mode(locked) -> None:
    model, tokenizer = locked
    prompts = [
        [{"role": "user", "content": f"Ben has 3 keys. How many keys does Ben have? {w}"}]
        for w in ("/think", "/no_think")
    ]
    together = generate_answers(model, tokenizer, prompts, max_new_tokens=4)
    alone = [generate_answers(model, tokenizer, [prompt], max_new_tokens=4)[0] for prompt in prompts]
    assert [record["output"] for record in together] == [record["output"] for record in alone]
