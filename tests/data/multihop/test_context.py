"""Contexts of a wanted length: evidence in, nothing twice, longer ones hold shorter ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from routelab.data.multihop import MultiHopQuestion, Passage, build_contexts, read_multihop
from routelab.errors import DataError


def words(text: str) -> int:
    return len(text.split())


def questions(n: int = 12, passages: int = 6) -> list[MultiHopQuestion]:
    return [
        MultiHopQuestion(
            id=str(i),
            question="?",
            answer="!",
            passages=tuple(Passage(f"t{(i * passages + j) % 50}", "word " * (5 + j)) for j in range(passages)),
            evidence=(1, 4),
            kind="bridge",
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("tokens", [30, 90, 250])
def test_evidence_is_in_once_and_the_length_is_true(tokens: int) -> None:
    for built in build_contexts(questions(), tokens, words):
        titles = [passage.title for passage in built.passages]
        assert len(set(titles)) == len(titles)
        assert {titles[index] for index in built.evidence} == {
            built.question.passages[index].title for index in built.question.evidence
        }
        assert built.tokens == words(built.text) <= tokens
        assert built.tokens > tokens - 11, "one more passage of ten words and a title would have fitted"


def test_a_longer_context_holds_a_shorter_one_in_order() -> None:
    for short, long in zip(
        build_contexts(questions(), 40, words), build_contexts(questions(), 200, words), strict=True
    ):
        kept = [passage for passage in long.passages if passage in short.passages]
        assert kept == list(short.passages)


def test_the_seed_decides_and_repeats() -> None:
    assert build_contexts(questions(), 90, words, seed=1) == build_contexts(questions(), 90, words, seed=1)
    assert build_contexts(questions(), 90, words, seed=1) != build_contexts(questions(), 90, words, seed=2)


def test_the_first_questions_are_asked_with_passages_of_all() -> None:
    few = build_contexts(questions(), 200, words, asked=2)
    assert few == build_contexts(questions(), 200, words)[:2]
    with pytest.raises(DataError, match="13 questions are asked and 12 are there"):
        build_contexts(questions(), 200, words, asked=13)


def test_what_cannot_be_built_is_named() -> None:
    with pytest.raises(DataError, match="evidence of question 0 has 17 tokens, more than 10"):
        build_contexts(questions(), 10, words)
    with pytest.raises(DataError, match="around question 0, not 5000; read more questions"):
        build_contexts(questions(), 5000, words)


def test_real_passages(data_root: Path) -> None:
    hotpot = read_multihop(data_root / "hotpotqa/dev_distractor_sample.jsonl.gz", limit=40)
    for built in build_contexts(hotpot, 2000, words):
        assert 1500 < built.tokens <= 2000
