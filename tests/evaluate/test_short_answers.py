"""SQuAD's exact match and F1 on answers worked out by hand."""

from __future__ import annotations

import pytest

from routelab.evaluate.short_answers import exact_match, normalised, token_f1


def test_normalisation() -> None:
    assert normalised("The  Chief, of (a) Protocol!") == "chief of protocol"


@pytest.mark.parametrize(
    ("answer", "gold", "match", "f1"),
    [
        ("the Chief of Protocol.", ["Chief of Protocol"], True, 1.0),
        ("Chief", ["Chief of Protocol"], False, 0.5),
        ("red red blue", ["red green"], False, 0.4),
        ("Oslo", ["Bergen", "oslo"], True, 1.0),
        ("yes it is", ["yes"], False, 0.0),
        ("", ["Oslo"], False, 0.0),
    ],
)
def test_scores(answer: str, gold: list[str], match: bool, f1: float) -> None:
    assert exact_match(answer, gold) is match
    assert token_f1(answer, gold) == pytest.approx(f1)
