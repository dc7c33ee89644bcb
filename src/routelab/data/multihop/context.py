"""Contexts of a wanted length around the evidence of a question, filled with real passages of other questions.

Source: WISE (arXiv 2609.27373), appendix B, "Context-length scaling".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from routelab.data.multihop.readers import MultiHopQuestion, Passage
from routelab.errors import DataError


@dataclass(frozen=True)
class BuiltContext:
    """One context: its passages in reading order, which of them (indices) are evidence, its exact length in tokens."""

    question: MultiHopQuestion
    passages: tuple[Passage, ...]
    evidence: tuple[int, ...]
    tokens: int

    @property
    def text(self) -> str:
        """The context as a model reads it."""
        return _text(self.passages)


def build_contexts(
    questions: Sequence[MultiHopQuestion],
    tokens: int,
    count: Callable[[str], int],
    *,
    asked: int | None = None,
    seed: int = 0,
) -> list[BuiltContext]:
    """Return a context of at most ``tokens`` tokens for each question: its evidence, and whole passages around it.

    The evidence is always in. Then come the question's own other passages, then passages of the other questions, each
    title once, until the next one does not fit; nothing is cut, repeated or padded. Choice and order depend on
    ``seed`` and the question alone, so a longer context holds all of a shorter one, in the same order.

    Args:
        questions: all questions that passages are taken from.
        count: how many tokens a text has.
        asked: how many of the questions, from the first, get a context; all by default.

    Raises:
        DataError: there are fewer questions than are asked, the evidence of a question is longer than ``tokens``, or
            all passages together are shorter.
    """
    if asked is not None and asked > len(questions):
        raise DataError(f"{asked} questions are asked and {len(questions)} are there")
    pool = [passage for question in questions for passage in question.passages]
    return [_build(question, pool, tokens, count, seed) for question in questions[:asked]]


def _build(
    question: MultiHopQuestion, pool: Sequence[Passage], tokens: int, count: Callable[[str], int], seed: int
) -> BuiltContext:
    rng = random.Random(f"{seed}:{question.id}")
    place = {question.passages[index].title: rng.random() for index in question.evidence}
    chosen = sorted((question.passages[index] for index in question.evidence), key=lambda one: place[one.title])
    length = count(_text(chosen))
    if length > tokens:
        raise DataError(f"the evidence of question {question.id} has {length} tokens, more than {tokens}")
    for passage in _fillers(question, pool, rng):
        if passage.title in place:
            continue
        place[passage.title] = rng.random()
        longer = sorted([*chosen, passage], key=lambda one: place[one.title])
        if (now := count(_text(longer))) > tokens:
            break
        chosen, length = longer, now
    else:
        raise DataError(
            f"all passages of these {len(pool)} give {length} tokens around question {question.id}, not {tokens}; "
            "read more questions"
        )
    evidence = {question.passages[index].title for index in question.evidence}
    found = tuple(index for index, passage in enumerate(chosen) if passage.title in evidence)
    return BuiltContext(question, tuple(chosen), found, length)


def _fillers(question: MultiHopQuestion, pool: Sequence[Passage], rng: random.Random) -> Iterator[Passage]:
    own = list(question.passages)
    rng.shuffle(own)
    yield from own
    yield from rng.sample(pool, len(pool))


def _text(passages: Sequence[Passage]) -> str:
    return "\n".join(f"{passage.title}: {passage.text}" for passage in passages)
