"""Loss of given replies, labelled exactly as in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routelab.errors import EvaluationError
from routelab.evaluate.loglikelihood import token_log_likelihoods
from routelab.train.encode import IGNORED, ChatEncoder

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
    assistant_only: bool = True,
) -> list[TextLoss]:
    """Return ``−(1/n) Σ log p(token)`` over the n assistant tokens (end of turn included) of each row's ``messages``.

    Raises:
        EvaluationError: there are no rows, or one has no token to score.
        DataError, TrainingError: the chat template cannot render or label a row.
    """
    encode = ChatEncoder(tokenizer, assistant_only=assistant_only)
    documents = [encode(row["messages"], f"row {row.get('id', i)!r}") for i, row in enumerate(rows)]
    for row, document in zip(rows, documents, strict=True):
        if not document.labelled:
            raise EvaluationError(f"row {row.get('id')!r} has no assistant token to score")
    sequences = [(document.input_ids.tolist(), (document.labels != IGNORED).tolist()) for document in documents]
    totals = token_log_likelihoods(model, sequences, batch_size=batch_size)
    return [
        TextLoss(-total / document.labelled, document.labelled)
        for total, document in zip(totals, documents, strict=True)
    ]
