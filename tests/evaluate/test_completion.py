"""Cutting, completing and scoring sentences."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from routelab.errors import EvaluationError
from routelab.evaluate.completion import complete, cut, exact_match
from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM


def test_a_cut_keeps_a_word_and_leaves_a_word() -> None:
    sentence = (0, 5, 6, 7, 8, 1)
    prompts = cut([sentence] * 3000, seed=0)
    kept = Counter(len(prompt) - 1 for prompt in prompts)
    assert set(kept) == {1, 2, 3}
    assert all(900 < count < 1100 for count in kept.values()), "uniform"
    assert all(prompt == sentence[: len(prompt)] for prompt in prompts)
    assert prompts == cut([sentence] * 3000, seed=0) != cut([sentence] * 3000, seed=1)


def test_a_sentence_of_one_word_cannot_be_cut() -> None:
    with pytest.raises(EvaluationError, match="one has 1"):
        cut([(0, 5, 6, 1), (0, 5, 1)], seed=0)


def test_completions_are_greedy_and_in_the_order_of_the_prompts() -> None:
    torch.manual_seed(0)
    model = OneLayerForCausalLM(OneLayerConfig(vocab_size=9, hidden_size=8, expert_sizes=[4, 4], initializer_range=1.0))
    prompts = [(0, 3), (0, 4, 5), (0, 3), (0, 7), (0, 2, 2, 6), (0, 8)]
    found = complete(model, prompts, end=1, max_length=8)
    for prompt, completion in zip(prompts, found, strict=True):
        row = list(prompt)
        while row[-1] != 1 and len(row) < 8:
            row.append(int(model(torch.tensor([row])).logits[0, -1].argmax()))
        assert completion == tuple(row)
    assert len({len(completion) for completion in found}) > 1, "some end early"


def test_exact_match_counts_any_sentence() -> None:
    sentences = {(0, 2, 3, 1), (0, 2, 4, 1)}
    assert exact_match([(0, 2, 3, 1), (0, 2, 4, 1), (0, 2, 3), (0, 2, 5, 1)], sentences) == 0.5
    with pytest.raises(EvaluationError, match="no completion"):
        exact_match([], sentences)
