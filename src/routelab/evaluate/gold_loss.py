"""Teacher-forced loss of the right answer, and forwards of a recurrent host at a chosen depth and seed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from routelab.errors import EvaluationError, closest
from routelab.evaluate.loglikelihood import continued, token_log_likelihoods
from routelab.evaluate.loss import TextLoss
from routelab.evaluate.prompts import Prompt, render
from routelab.hosts.calls import call_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def gold_losses(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[tuple[Prompt, str]],
    *,
    batch_size: int = 16,
) -> list[TextLoss]:
    """Return ``−(1/n) Σ log p(token | prompt, tokens before)`` over the n tokens of each gold answer, in nats.

    Prompt and answer are tokenised together and run in one forward; give the space before the answer where the language
    wants one. A method runs as it does in prefill, so with the paper's block supports the answer's own tokens take part
    in choosing what they read; ``WISEConfig(causal=True)`` does not have that leak.

    Args:
        questions: ``(prompt, gold answer)``; prompts as in :func:`routelab.evaluate.generate_answers`.

    Raises:
        EvaluationError: no questions, or an empty answer.
    """
    sequences = []
    for number, (prompt, gold) in enumerate(questions):
        if not gold.strip():
            raise EvaluationError(f"question {number} has an empty gold answer: {prompt!r}")
        sequences.append(continued(tokenizer, render(tokenizer, prompt), gold, special=isinstance(prompt, str)))
    totals = token_log_likelihoods(model, sequences, batch_size=batch_size)
    counts = [sum(scored) for _, scored in sequences]
    return [TextLoss(-total / count, count) for total, count in zip(totals, counts, strict=True)]


@contextmanager
def calling_with(model: PreTrainedModel, **arguments: Any) -> Iterator[None]:
    """Give every forward in this context ``arguments``, such as ``num_steps`` and ``seed``, where it names none itself.

    What evaluates a model calls it with ids and masks alone; this is how its forwards take a depth and the seed of the
    initial state.

    Raises:
        EvaluationError: the model's forward does not take one of them.
    """
    known = inspect.signature(type(model).forward).parameters
    for name in arguments:
        if name not in known:
            raise EvaluationError(f"forward of {type(model).__name__} takes no {name!r}{closest(name, known)}")

    def fill(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[()], dict[str, Any]]:
        given = call_arguments(module, args, kwargs)
        return (), {**given, **{name: value for name, value in arguments.items() if given.get(name) is None}}

    handle = model.register_forward_pre_hook(fill, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
