"""Answers of a host under one condition: what it says, how right it is, and the loss of the right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import routelab
from routelab.evaluate.generate import generate_answers
from routelab.evaluate.gold_loss import calling_with, gold_losses
from routelab.evaluate.short_answers import exact_match, token_f1
from routelab.methods.wise.config import WISEConfig
from routelab.recipe.working_sets import QuestionSpec
from routelab.working_sets.questions import Question

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    spec: QuestionSpec,
    config: WISEConfig,
    *,
    num_steps: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return one record a question: ``id``, ``answer`` (the first line said), ``gold``, ``em``, ``f1``, ``loss`` (of
    the right answer after a space, nats per token) and ``finished``."""
    routelab.attach(model, config)
    try:
        with calling_with(model, num_steps=num_steps, seed=seed):
            said = generate_answers(
                model,
                tokenizer,
                [each.prompt for each in questions],
                ids=[each.id for each in questions],
                max_new_tokens=spec.max_new_tokens,
                batch_size=spec.batch_size,
                stop=["\n"],
                share_prefix=False,  # the working set of a prompt is found on the whole of it
            )
            pairs = [(each.prompt, f" {each.answer}") for each in questions]
            losses = gold_losses(model, tokenizer, pairs, batch_size=spec.batch_size)
    finally:
        routelab.detach(model)
    return [
        {
            "id": question.id,
            "answer": (text := output["output"].strip()),
            "gold": question.answer,
            "em": float(exact_match(text, [question.answer])),
            "f1": token_f1(text, [question.answer]),
            "loss": loss.loss,
            "finished": output["finished"],
        }
        for question, output, loss in zip(questions, said, losses, strict=True)
    ]
