"""The questions of a run, in contexts of a wanted length: the same for every condition and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routelab.data.mini_world import MiniWorld
from routelab.data.multihop import build_contexts, read_multihop
from routelab.evaluate.prompts import Prompt, encode
from routelab.recipe.working_sets import MINI, QuestionSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Paragraphs that are drawn to learn how many tokens a sentence has.
_SAMPLE = 20


@dataclass(frozen=True)
class Question:
    """One question as it is asked: the prompt in the form a tokenizer takes, its length, and the answer."""

    id: str
    prompt: Prompt
    answer: str
    tokens: int


def ask(spec: QuestionSpec, tokenizer: PreTrainedTokenizerBase, tokens: int) -> list[Question]:
    """Return ``spec.limit`` questions whose contexts have about ``tokens`` tokens.

    Paragraphs of the mini-world have the number of sentences that comes nearest on average. Real questions keep their
    evidence and are filled up with whole passages of other questions (:mod:`routelab.data.multihop.context`).

    Raises:
        DataError: too few questions, or contexts that cannot be built to that length.
    """
    texts = _mini(spec, tokenizer, tokens) if spec.source == MINI else _multihop(spec, tokenizer, tokens)
    found = []
    for name, text, answer in texts:
        prompt: Prompt = text if spec.prompt == "plain" else [{"role": "user", "content": text}]
        found.append(Question(name, prompt, answer, len(encode(tokenizer, prompt))))
    return found


def rows_of(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return questions as plain rows, for hashes."""
    return [{"id": each.id, "prompt": each.prompt, "answer": each.answer} for each in questions]


def _mini(spec: QuestionSpec, tokenizer: PreTrainedTokenizerBase, tokens: int) -> list[tuple[str, str, str]]:
    world = MiniWorld(seed=0)
    sample = world.paragraphs("test", _SAMPLE, sentences=20, hops=spec.hops, draw="length")
    per_sentence = sum(len(tokenizer(row["context"])["input_ids"]) for row in sample) / (20 * _SAMPLE)
    rows = world.paragraphs("test", spec.limit, sentences=max(spec.hops, round(tokens / per_sentence)), hops=spec.hops)
    return [(row["id"], f"{row['context']}\n{row['question']}", row["answer"]) for row in rows]


def _multihop(spec: QuestionSpec, tokenizer: PreTrainedTokenizerBase, tokens: int) -> list[tuple[str, str, str]]:
    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    questions = read_multihop(spec.source, spec.split, spec.pool)
    contexts = build_contexts(questions, tokens, count, asked=spec.limit)
    end = "Answer:" if spec.prompt == "plain" else "Answer with a few words."
    return [
        (each.question.id, f"{each.text}\n\nQuestion: {each.question.question}\n{end}", each.question.answer)
        for each in contexts
    ]
