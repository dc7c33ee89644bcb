"""Log-likelihoods of given tokens, batched, and multiple choice by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from routelab.errors import EvaluationError
from routelab.evaluate.generate import evaluating
from routelab.evaluate.prompts import Prompt, render
from routelab.methods.attachment import added_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Logits are float32 [rows, positions, vocabulary]: at most this many numbers at once.
_MAX_LOGITS = 2**27
_IGNORED = -100

Scored = tuple[Sequence[int], Sequence[bool]]
"""Token ids, and which of them are scored."""


@dataclass(frozen=True)
class ChoiceScores:
    """Log-likelihoods of the choices of one question.

    Attributes:
        total: ``Σ_t log p(token t of the choice | question, tokens before)`` for each choice.
        characters: characters of each choice, by which :attr:`by_length` divides (as lm-eval's ``acc_norm``).
    """

    total: tuple[float, ...]
    characters: tuple[int, ...]

    @property
    def best(self) -> int:
        """Index of the choice of highest total; the first among equals."""
        return self.total.index(max(self.total))

    @property
    def by_length(self) -> tuple[float, ...]:
        """Total per character."""
        return tuple(total / length for total, length in zip(self.total, self.characters, strict=True))

    @property
    def best_by_length(self) -> int:
        """Index of the choice of highest total per character."""
        return self.by_length.index(max(self.by_length))


def choice_log_likelihoods(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[tuple[Prompt, Sequence[str]]],
    *,
    ending: str = "",
    batch_size: int = 64,
) -> list[ChoiceScores]:
    """Score the choices of each question, ``(prompt, choices)``.

    A choice is appended to the rendered prompt as text (give the space before it where the language wants one) and
    both are tokenised together. Where the last token of the prompt then changes, scoring starts with the first token
    that differs from the prompt's own. ``ending`` (an end-of-turn token) is scored after every choice.

    Raises:
        EvaluationError: no questions, a question without choices, or an empty choice.
    """
    sequences: list[Scored] = []
    sizes = []
    for prompt, choices in questions:
        if not choices or not all(choices):
            raise EvaluationError(f"the question {prompt!r} has no choices, or an empty one: {list(choices)!r}")
        text, special = render(tokenizer, prompt), isinstance(prompt, str)
        sequences += [continued(tokenizer, text, choice + ending, special=special) for choice in choices]
        sizes.append([len(choice) for choice in choices])
    totals = iter(token_log_likelihoods(model, sequences, batch_size=batch_size))
    return [ChoiceScores(tuple(next(totals) for _ in lengths), tuple(lengths)) for lengths in sizes]


def continued(tokenizer: PreTrainedTokenizerBase, text: str, reply: str, *, special: bool) -> Scored:
    """Return the token ids of ``text + reply`` and which of them belong to ``reply``.

    Where the last token of ``text`` changes by what follows, the reply begins with the first token that differs.
    """
    alone = tokenizer(text, add_special_tokens=special)["input_ids"]
    whole = tokenizer(text + reply, add_special_tokens=special)["input_ids"]
    start = next((i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b), len(alone))
    return whole, [i >= max(start, 1) for i in range(len(whole))]


def token_log_likelihoods(model: PreTrainedModel, sequences: Sequence[Scored], *, batch_size: int = 64) -> list[float]:
    """Return ``Σ_t scored[t] · log p(ids[t] | ids[:t])`` for each ``(ids, scored)``, in float32 log-softmax.

    Sequences are left-padded in batches of similar length and only logits from the first scored token on are computed.

    Raises:
        EvaluationError: no sequences, lengths that differ, or a first token that is scored (nothing predicts it).
    """
    if not sequences:
        raise EvaluationError("there is no text to score")
    for number, (ids, scored) in enumerate(sequences):
        if len(ids) != len(scored) or not any(scored) or scored[0]:
            raise EvaluationError(
                f"sequence {number} of {len(ids)} tokens has {len(scored)} marks, {sum(scored)} of them set; a token "
                "must be scored, and the first cannot be, since nothing predicts it"
            )
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i][0]))
    spans = [len(ids) - list(scored).index(True) for ids, scored in sequences]
    totals = [0.0] * len(sequences)
    with evaluating(model):
        while order:
            batch = _next_batch(order, spans, batch_size, model.config.get_text_config().vocab_size)
            scores = _score(model, [sequences[i] for i in batch], max(spans[i] for i in batch))
            for i, total in zip(batch, scores, strict=True):
                totals[i] = total
    return totals


def _next_batch(order: list[int], spans: Sequence[int], batch_size: int, vocabulary: int) -> list[int]:
    """Take from the front of ``order`` as many sequences as fit."""
    batch = [order.pop(0)]
    span = spans[batch[0]]
    while order and len(batch) < batch_size:
        span = max(span, spans[order[0]])
        if (len(batch) + 1) * (span + 1) * vocabulary > _MAX_LOGITS:
            break
        batch.append(order.pop(0))
    return batch


def _score(model: PreTrainedModel, batch: Sequence[Scored], span: int) -> list[float]:
    width = max(len(ids) for ids, _ in batch)
    tokens = torch.zeros(len(batch), width, dtype=torch.long)
    labels = torch.full((len(batch), width), _IGNORED)
    mask, prompt = torch.zeros_like(tokens), torch.zeros_like(tokens)
    for row, (ids, scored) in enumerate(batch):
        start = width - len(ids)
        prompt[row, start : start + list(scored).index(True)] = 1
        tokens[row, start:] = torch.tensor(ids)
        mask[row, start:] = 1
        labels[row, start:] = torch.where(torch.tensor(scored), tokens[row, start:], _IGNORED)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    device = model.device
    # A method that decides on the prompt must not decide on what is scored.
    added = {"prompt_mask": prompt.to(device)} if "prompt_mask" in added_arguments(model) else {}
    logits = model(
        input_ids=tokens.to(device),
        attention_mask=mask.to(device),
        position_ids=positions.to(device),
        use_cache=False,
        logits_to_keep=span + 1,
        **added,
    ).logits[:, :-1]
    losses = F.cross_entropy(
        logits.float().flatten(0, 1),
        labels[:, -logits.shape[1] :].to(device).flatten(),
        reduction="none",
        ignore_index=_IGNORED,
    )
    return [-float(total) for total in losses.view(len(batch), -1).double().sum(-1)]
