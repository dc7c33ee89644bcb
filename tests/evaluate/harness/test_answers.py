from __future__ import annotations

import pytest

from routelab.evaluate.harness.answers import big_bench, lettered, without_thoughts


@pytest.mark.parametrize(
    ("output", "target", "right"),
    [
        (" (B)", "(B)", True),
        ("(A) because of (B)", "(B)", False),
        ("B", "(B)", True),
        ("B. The second", "(B)", True),
        ("A man walks", "(A)", False),
        ("Let us see.\n(A) is wrong. So the answer is (B).", "(B)", True),
        ("True", "True", True),
        ("True or False", "False", False),
        ("no, they are not", "No", True),
        ("The answer is: valid.", "valid", True),
        ("invalid", "valid", False),
        ("-11520", "-11520", True),
        ("1,152", "1152", True),
        ("> > >", "> > >", True),
        ("Answer: agile, beth kenya", "agile beth kenya", True),
        ("agile beth", "agile beth kenya", False),
        ("\n\n Monsters, Inc", "Monsters, Inc", True),
        ("", "No", False),
    ],
)
def test_big_bench_hard(output: str, target: str, right: bool) -> None:
    assert big_bench({"target": target}, [output]) == {"exact_match": float(right)}


def test_thoughts_are_stripped_and_other_text_is_untouched() -> None:
    outputs = [["<think>a</think> b", " as it is\n"], ["a</think>\nb", "<think>never closed"]]
    assert without_thoughts(outputs, [{}, {}]) == [["b", " as it is\n"], ["b", ""]]


def test_letters() -> None:
    assert lettered([["#### C", "the answer is (A)"], ["E", ""]], [{}, {}]) == [["C", "A"], ["", ""]]
