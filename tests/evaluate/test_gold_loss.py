"""Loss of gold answers, and forwards at a chosen depth and seed."""

from __future__ import annotations

import math

import pytest
import torch

import routelab
from routelab.errors import EvaluationError
from routelab.evaluate.generate import generate_answers
from routelab.evaluate.gold_loss import calling_with, gold_losses
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.methods.attachment import attached

QUESTIONS = [
    ("Ben has 3 keys and finds 4 more. How many keys does Ben have?", " 7"),
    ("Where does the sister of Ann live?", " in a small town by the sea"),
    ("Who is it?", " Ann"),
]


@pytest.fixture(scope="module")
def host(tokenizer) -> RecurrentForCausalLM:
    torch.manual_seed(0)
    config = RecurrentConfig(
        n_embd=32,
        n_heads=4,
        intermediate_size=48,
        n_layers_in_prelude=1,
        n_layers_in_recurrent_block=1,
        n_layers_in_coda=1,
        vocab_size=len(tokenizer),
        padding_multiple=64,
        block_size=128,
        mean_recurrence=4,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = RecurrentForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
    return model


def slow_loss(model, tokenizer, prompt: str, gold: str, **arguments: int) -> float:
    before, ids = (tokenizer(text)["input_ids"] for text in (prompt, prompt + gold))
    assert ids[: len(before)] == before
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False, **arguments).logits[0].double().log_softmax(-1)
    scored = range(len(before), len(ids))
    return -sum(float(logits[t - 1, ids[t]]) for t in scored) / len(scored)


def test_losses_equal_one_forward_each(host, tokenizer) -> None:
    found = gold_losses(host, tokenizer, QUESTIONS, batch_size=2)
    for one, (prompt, gold) in zip(found, QUESTIONS, strict=True):
        assert one.loss == pytest.approx(slow_loss(host, tokenizer, prompt, gold), abs=1e-4)
        assert one.tokens == len(tokenizer(prompt + gold)["input_ids"]) - len(tokenizer(prompt)["input_ids"])
    assert len({round(one.loss, 3) for one in found}) == len(found)


def test_depth_and_seed_reach_every_forward(host, tokenizer) -> None:
    plain = gold_losses(host, tokenizer, QUESTIONS)
    with calling_with(host, num_steps=2, seed=5):
        chosen = gold_losses(host, tokenizer, QUESTIONS)
        named = host(torch.arange(4)[None], num_steps=4, seed=0).logits
    for one, (prompt, gold) in zip(chosen, QUESTIONS, strict=True):
        assert one.loss == pytest.approx(slow_loss(host, tokenizer, prompt, gold, num_steps=2, seed=5), abs=1e-4)
    assert math.dist([one.loss for one in plain], [one.loss for one in chosen]) > 1e-3
    assert torch.equal(named, host(torch.arange(4)[None]).logits)  # what a call names itself stays
    assert gold_losses(host, tokenizer, QUESTIONS) == plain  # and nothing stays behind


def test_generation_takes_the_depth_too(host, tokenizer) -> None:
    prompts = [prompt for prompt, _ in QUESTIONS]
    with calling_with(host, num_steps=2):
        found = generate_answers(host, tokenizer, prompts, max_new_tokens=3, share_prefix=False)
    ids = tokenizer(prompts[0], return_tensors="pt")["input_ids"]
    expected = []
    with torch.no_grad():
        for _ in range(3):
            following = host(ids, num_steps=2).logits[:, -1].argmax(-1, keepdim=True)
            expected.append(int(following))
            ids = torch.cat([ids, following], 1)
    assert found[0]["output"] == tokenizer.decode(expected)


def test_a_condition_is_measured_as_attached(host, tokenizer) -> None:
    full = gold_losses(host, tokenizer, QUESTIONS)
    routelab.attach(host, routelab.WISEConfig(discovery_steps=1, window=1, block_size=8, mass=0.3))
    try:
        found = gold_losses(host, tokenizer, QUESTIONS)
        assert attached(host)[0].last.supports is not None
        for one, (prompt, gold) in zip(found, QUESTIONS, strict=True):
            assert one.loss == pytest.approx(slow_loss(host, tokenizer, prompt, gold), abs=1e-4)
        assert max(abs(a.loss - b.loss) for a, b in zip(found, full, strict=True)) > 1e-4
    finally:
        routelab.detach(host)


def test_bad_input_is_refused(host, tokenizer) -> None:
    with pytest.raises(EvaluationError, match="question 1 has an empty gold answer"):
        gold_losses(host, tokenizer, [QUESTIONS[0], ("Who?", " ")])
    with pytest.raises(EvaluationError, match="did you mean 'num_steps'"), calling_with(host, num_step=3):
        pass
