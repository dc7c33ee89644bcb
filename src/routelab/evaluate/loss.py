"""Loss of the replies in given chats, over the tokens that training labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routelab.errors import EvaluationError
from routelab.evaluate.loglikelihood import Scored, continued, token_log_likelihoods
from routelab.evaluate.prompts import render

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TextLoss:
    """Mean negative log-likelihood, in nats per token, of the assistant's ``tokens`` in one chat."""

    loss: float
    tokens: int


def text_loss(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, Any]],
    *,
    batch_size: int = 16,
) -> list[TextLoss]:
    """Return ``−(1/n) Σ log p(token)`` over the n assistant tokens, ends of turns included, of each row's ``messages``.

    Each reply is scored after the turns before it: what rendering ``messages[:i+1]`` adds to rendering ``messages[:i]``
    with the generation prompt, without white space at its end.

    Raises:
        EvaluationError: a row has no reply, or the chat template cannot render it or changes what came before.
    """
    replies: list[Scored] = []
    owners: list[int] = []
    for number, row in enumerate(rows):
        found = list(_replies(tokenizer, row["messages"], f"row {row.get('id', number)!r}"))
        replies += found
        owners += [number] * len(found)
    totals, tokens = [0.0] * len(rows), [0] * len(rows)
    likelihoods = token_log_likelihoods(model, replies, batch_size=batch_size)
    for owner, reply, likelihood in zip(owners, replies, likelihoods, strict=True):
        totals[owner] -= likelihood
        tokens[owner] += sum(reply[1])
    return [TextLoss(total / count, count) for total, count in zip(totals, tokens, strict=True)]


def _replies(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]], name: str) -> list[Scored]:
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        raise EvaluationError(f"{name} has no assistant turn to score")
    replies = []
    for i in turns:
        before = render(tokenizer, messages[:i])
        after = str(tokenizer.apply_chat_template(list(messages[: i + 1]), tokenize=False))
        if not after.startswith(before):
            raise EvaluationError(f"{name}: the chat template does not go on from the generation prompt at turn {i}")
        replies.append(continued(tokenizer, before, after[len(before) :].rstrip(), special=False))
    return replies
