from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from routelab.errors import EvaluationError
from routelab.evaluate import loglikelihood
from routelab.evaluate.loglikelihood import ChoiceScores, choice_log_likelihoods, token_log_likelihoods
from routelab.evaluate.loss import text_loss

Make = Callable[..., PreTrainedModel]

QUESTIONS = [
    ([{"role": "user", "content": "What does Fenbek eat?"}], ["mint", "onions", "garlic", "a great deal of cabbage"]),
    ([{"role": "user", "content": "In what city does Holdis live, if you happen to know?"}], ["Marden", "Ulster"]),
    ("The sky is", [" blue", " made of cheese"]),
]


def _alone(model: PreTrainedModel, ids: list[int], start: int) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(logits[i - 1, ids[i]].item() for i in range(start, len(ids)))


@pytest.mark.parametrize("family", ["llama", "olmoe", "qwen3_5_moe_text"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batches_equal_one_by_one(
    family: str, batch_size: int, make_model: Make, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = make_model(family)
    scores = choice_log_likelihoods(model, tokenizer, QUESTIONS, ending=tokenizer.eos_token, batch_size=batch_size)
    for (prompt, choices), score in zip(QUESTIONS, scores, strict=True):
        text = prompt if isinstance(prompt, str) else tokenizer.apply_chat_template(
            prompt, tokenize=False, add_generation_prompt=True
        )  # fmt: skip
        start = len(tokenizer(text, add_special_tokens=False).input_ids)
        for choice, total in zip(choices, score.total, strict=True):
            ids = tokenizer(text + choice + tokenizer.eos_token, add_special_tokens=False).input_ids
            assert ids[-1] == tokenizer.eos_token_id
            assert total == pytest.approx(_alone(model, ids, start), abs=2e-4, rel=1e-4)


def test_memory_limit_splits_batches_and_changes_nothing(
    make_model: Make, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model("llama")
    whole = choice_log_likelihoods(model, tokenizer, QUESTIONS)
    calls = []
    handle = model.register_forward_pre_hook(lambda *given: calls.append(1))
    monkeypatch.setattr(loglikelihood, "_MAX_LOGITS", 1)
    split = choice_log_likelihoods(model, tokenizer, QUESTIONS)
    handle.remove()
    assert len(calls) == sum(len(choices) for _, choices in QUESTIONS)
    for a, b in zip(whole, split, strict=True):
        assert a.total == pytest.approx(b.total, abs=2e-4, rel=1e-4)


def test_merged_boundary_is_scored_from_the_first_token_that_differs(
    make_model: Make, tokenizer: PreTrainedTokenizerBase
) -> None:
    model = make_model("llama")
    prompt, choice = "How man", "y cookies"
    alone, whole = tokenizer(prompt).input_ids, tokenizer(prompt + choice).input_ids
    start = next(i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b)
    assert start < len(alone), "the test wants a boundary that the tokenizer merges"
    (score,) = choice_log_likelihoods(model, tokenizer, [(prompt, [choice])])
    assert score.total[0] == pytest.approx(_alone(model, whole, start), abs=2e-4, rel=1e-4)


def test_best_choice_by_total_and_by_length() -> None:
    scores = ChoiceScores((-4.0, -6.0, -4.0), (2, 6, 4))
    assert scores.best == 0
    assert scores.by_length == (-2.0, -1.0, -1.0)
    assert scores.best_by_length == 1


@pytest.mark.parametrize(
    "sequences", [[], [([1, 2], [True, True])], [([1, 2], [False, False])], [([1, 2, 3], [False, True])]]
)
def test_what_cannot_be_scored_is_refused(sequences: list, make_model: Make) -> None:
    with pytest.raises(EvaluationError):
        token_log_likelihoods(make_model("llama"), sequences)


def test_questions_need_choices(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    for choices in ([], ["a", ""]):
        with pytest.raises(EvaluationError, match="no choices, or an empty one"):
            choice_log_likelihoods(make_model("llama"), tokenizer, [("Who?", choices)])


def test_text_loss_equals_the_loss_of_training(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    model = make_model("llama").train()
    rows = [
        {"id": "a", "messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "1 + 1 = 2"}]},
        {
            "id": "b",
            "messages": [
                {"role": "user", "content": "Hello there, my friend."},
                {"role": "assistant", "content": "Good day."},
                {"role": "user", "content": "Who?"},
                {"role": "assistant", "content": "Kai."},
            ],
        },
    ]
    losses = text_loss(model, tokenizer, rows, batch_size=2)
    assert model.training
    model.eval()
    for row, found in zip(rows, losses, strict=True):
        encoded = tokenizer.apply_chat_template(
            row["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        ids = torch.tensor([encoded["input_ids"]])
        labels = torch.where(torch.tensor([encoded["assistant_masks"]]) == 1, ids, -100)
        assert found.tokens == int((labels != -100).sum())
        assert found.loss == pytest.approx(model(ids, labels=labels).loss.item(), abs=1e-5)


def test_templates_that_rewrite_the_prompt_are_refused(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [{"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]}]
    odd = copy.deepcopy(tokenizer)
    odd.chat_template = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(EvaluationError, match="row 0: the chat template does not go on"):
        text_loss(make_model("llama"), odd, rows)


def test_text_loss_needs_a_reply(make_model: Make, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [{"id": "x", "messages": [{"role": "user", "content": "1 + 1?"}]}]
    with pytest.raises(EvaluationError, match="'x' has no assistant turn"):
        text_loss(make_model("llama"), tokenizer, rows)
