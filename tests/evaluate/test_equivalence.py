from __future__ import annotations

import logging
import threading
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.evaluate.equivalence import as_fraction, equivalent

SAME = [
    ("1234", "1,234.00"),
    ("0.5", "1/2"),
    ("1.5", "1 1/2"),
    ("-0.5", "-1/2"),
    ("\\frac{1}{2}", "0.5"),
    ("3/4", "\\frac34"),
    ("50", "50%"),
    ("0.5", "50%"),
    ("50%", "50"),
    ("1000", "1e3"),
    ("007", "7"),
    ("18", "$18"),
    ("18", "18 dollars"),
    ("A", "(a)"),
    ("yes", "Yes."),
]
DIFFERENT = [
    ("3", "-3"),
    ("3", ""),
    ("", ""),
    ("0.33", "1/3"),
    ("5", "5/0"),
    ("yes", "no"),
    ("1/2", "0.51"),
    ("50%", "5"),
]


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_same(gold: str, answer: str) -> None:
    assert equivalent(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different(gold: str, answer: str) -> None:
    assert not equivalent(gold, answer)


def test_expressions_go_to_math_verify() -> None:
    assert equivalent("x+1", "1+x")
    assert equivalent("2", "\\sqrt{4}")
    assert equivalent("1/3", "0.333333")
    assert not equivalent("x+1", "x+2")


def test_plain_numbers_and_words_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gold: str, answer: str) -> bool:
        raise AssertionError(f"symbolic comparison of {gold!r} and {answer!r}")

    monkeypatch.setattr("routelab.evaluate.equivalence.symbolically_equal", refuse)
    assert not equivalent("72", "73")
    assert not equivalent("onions", "garlic")
    assert not equivalent("(" * 400, "1")


def test_other_threads_are_served_too() -> None:
    verdicts: list[bool] = []
    thread = threading.Thread(target=lambda: verdicts.extend([equivalent("x+1", "1+x"), equivalent("72", "72.0")]))
    thread.start()
    thread.join()
    assert verdicts == [True, True]


def test_running_out_of_time_is_tried_again_and_then_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from math_verify import parser

    real, limits = parser.extract_target_from_pred, [1, 30]
    slow: list[str] = []

    def cold(text: str, *args: Any, **kwargs: Any) -> list[Any]:
        if len(slow) < most:
            slow.append(text)
            time.sleep(10)
        return list(real(text, *args, **kwargs))

    monkeypatch.setattr(parser, "extract_target_from_pred", cold)
    monkeypatch.setattr("routelab.evaluate.equivalence._SECONDS", limits)
    with caplog.at_level(logging.WARNING):
        most = 1
        assert equivalent("x+1", "1+x")
        assert slow == ["$x+1$"]
        assert not caplog.records
        most, limits[1] = 3, 1
        assert not equivalent("x+1", "1+x")
    assert "no verdict in time on whether '1+x' equals 'x+1'" in caplog.text


@given(st.fractions(max_denominator=1000), st.fractions(max_denominator=1000))
def test_exact_path_is_exact(first: Fraction, second: Fraction) -> None:
    assert as_fraction(str(first)) == first
    assert equivalent(str(first), str(first))
    if all(value.denominator in (1, 2, 4, 5, 8, 10, 100) for value in (first, second)):
        assert equivalent(str(first), str(second)) == (first == second)


@given(st.sampled_from(["9" * 500, "1e999999999", "1/0", "x", "", "1 2/0"]))
def test_what_is_no_number_of_reasonable_size(text: str) -> None:
    assert as_fraction(text) is None
