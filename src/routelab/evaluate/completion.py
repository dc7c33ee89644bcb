"""Completion of cut sentences, as the paper scores it: greedy to the end token, right if the result is a sentence."""

from __future__ import annotations

import random
from collections.abc import Container, Sequence

import torch
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.hosts.one_layer import OneLayerForCausalLM

Tokens = tuple[int, ...]


def cut(sequences: Sequence[Sequence[int]], seed: int) -> list[Tokens]:
    """Cut each sentence after a random word (arXiv 2606.14398, section 6.2, which gives no distribution).

    Of ``n`` words, uniformly 1 to ``n - 1`` stay, after the begin token: what is left to complete has a word at least.

    Args:
        sequences: token ids from the begin to the end token.

    Raises:
        EvaluationError: a sentence of fewer than two words.
    """
    rng = random.Random(seed)
    short = min(map(len, sequences), default=4)
    if short < 4:
        raise EvaluationError(f"a sentence to cut has two words at least, one has {max(0, short - 2)}")
    return [tuple(sequence[: 1 + rng.randint(1, len(sequence) - 3)]) for sequence in sequences]


@torch.no_grad()
def complete(model: OneLayerForCausalLM, prompts: Sequence[Tokens], *, end: int, max_length: int) -> list[Tokens]:
    """Return the greedy completion of every prompt, itself included, to ``end`` or ``max_length`` tokens.

    Equal prompts are completed once, and prompts of one length together, so nothing is padded.
    """
    by_length: dict[int, list[Tokens]] = {}
    for prompt in dict.fromkeys(prompts):
        by_length.setdefault(len(prompt), []).append(prompt)
    completed: dict[Tokens, Tokens] = {}
    for length, group in by_length.items():
        completed.update(zip(group, _greedy(model, torch.tensor(group), end, max_length - length), strict=True))
    return [completed[prompt] for prompt in prompts]


def exact_match(completions: Sequence[Tokens], sentences: Container[Tokens]) -> float:
    """Return the share of completions that are a sentence of the data set, of training and test alike."""
    if not completions:
        raise EvaluationError("there is no completion to score")
    return sum(completion in sentences for completion in completions) / len(completions)


def _greedy(model: OneLayerForCausalLM, ids: Tensor, end: int, steps: int) -> list[Tokens]:
    live = torch.arange(len(ids))
    done: list[Tokens] = [()] * len(ids)
    for _ in range(steps):
        following = model(ids, logits_to_keep=1).logits[:, 0].argmax(-1)
        ids = torch.cat([ids, following[:, None]], dim=1)
        ended = following == end
        for index, row in zip(live[ended].tolist(), ids[ended].tolist(), strict=True):
            done[index] = tuple(row)
        live, ids = live[~ended], ids[~ended]
        if not len(live):
            break
    for index, row in zip(live.tolist(), ids.tolist(), strict=True):
        done[index] = tuple(row)
    return done
