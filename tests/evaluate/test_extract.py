from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.evaluate.extract import extract_answer

CASES = [
    ("#### 1,234.", "1234", "hash"),
    ("<think>5</think>#### 4", "4", "hash"),
    ("maybe 5</think>The answer is 4.", "4", "phrase"),
    ("<think>#### 5</think>\n\\boxed{6}", "6", "boxed"),
    ("#### 5\nno, again\n#### 6", "6", "hash"),
    ("#### -$1,234.50", "-1234.50", "hash"),
    ("#### $-3", "-3", "hash"),
    ("#### −3", "-3", "hash"),
    ("#### $ 5 per day", "5", "hash"),
    ("#### **12**", "12", "hash"),
    ("#### .5", "0.5", "hash"),
    ("#### 50%", "50%", "hash"),
    ("#### 3 1/2 hours", "3 1/2", "hash"),
    ("#### 3/4", "3/4", "hash"),
    ("#### 1{,}234", "1234", "hash"),
    ("#### 2^10", "2^10", "hash"),
    ("#### \\frac{3}{4}", "\\frac{3}{4}", "hash"),
    ("#### yes", "yes", "hash"),
    ("#### - 5", "-5", "hash"),
    ("#### $- 5$", "-5", "hash"),
    ("#### 5 + 3 = 8", "8", "hash"),
    ("#### 3 x 4 = 12", "12", "hash"),
    ("#### 3 \\times 4 = 12", "12", "hash"),
    ("#### 3 - 5 = - 2 degrees", "-2", "hash"),
    ("#### x = 5", "5", "hash"),
    ("#### Step 1: 10-5=5\nThe answer is 7.", "7", "phrase"),
    ("#### 1 000", "1000", "hash"),
    ("#### -$12 345 678.5", "-12345678.5", "hash"),
    ("#### 1 0000", "1", "hash"),
    ("#### 1 000 5", "1", "hash"),
    ("#### 3 100/200", "3 100/200", "hash"),
    ("#### <b>5</b>", "5", "hash"),
    ('#### <span style="color:red">- 5</span>', "-5", "hash"),
    ("#### `5`", "5", "hash"),
    ("#### Step 1: halve\nHe has 10-5=5 apples", "5", "last_number"),
    ("####\nso 7", "7", "last_number"),
    ("so \\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt{2}}", "boxed"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}", "boxed"),
    ("\\boxed{1} then \\boxed{18 \\text{ dollars}}", "18", "boxed"),
    ("The answer is $\\boxed{7}$.", "7", "boxed"),
    ("The answer is **$18**.", "18", "phrase"),
    ("the answer is x = 5", "5", "phrase"),
    ("The answer is 5 + 3 = 8. It took 2 steps.", "8", "phrase"),
    ("Final answer: 42 kg", "42", "phrase"),
    ("The final answer is: (B)", "(B)", "phrase"),
    ("The correct answer is therefore 9", "9", "phrase"),
    ("10-5 leaves a few", "5", "last_number"),
    ("x2 is 3 and H2O is wet", "3", "last_number"),
    ("about 7 km/h.", "7", "last_number"),
    ("It costs $1.50.", "1.50", "last_number"),
    ("no idea", "", "none"),
    ("", "", "none"),
]


@pytest.mark.parametrize(("text", "answer", "where"), CASES)
def test_rules(text: str, answer: str, where: str) -> None:
    found = extract_answer(text)
    assert (found.answer, found.where, found.truncated) == (answer, where, False)


@pytest.mark.parametrize(
    "text", ["<think>#### 5", "<think>a</think>b<think>#### 5", "so \\boxed{12", "\\boxed{1} \\boxed{\\frac{1}"]
)
def test_cut_off_text_has_no_answer_and_says_so(text: str) -> None:
    found = extract_answer(text)
    assert (found.answer, found.truncated, found.where) == ("", True, "none")


def test_many_boxes_take_one_pass() -> None:
    opened = "\\boxed{" * 20_000
    assert extract_answer(opened).truncated
    assert extract_answer(opened + "5" + "}" * 20_000).answer == "5"
    assert extract_answer(opened + "5}").answer == "5"


def test_a_long_chain_of_equations_is_read_at_once() -> None:
    assert extract_answer("#### " + "x = " * 2_000 + "5").answer == "5"
    assert extract_answer("#### " + "x = " * 2_000 + "no idea").where == "none"


def test_braces_outside_boxes_do_not_count() -> None:
    assert extract_answer("} { \\boxed{\\{5} so").answer == "\\{5"
    assert extract_answer("a\\\\boxed{6}").answer == "6"


@given(st.integers(-(10**12), 10**12), st.booleans(), st.sampled_from(["", ".", "\n", " apples", "**"]))
def test_any_integer_comes_back(number: int, separated: bool, after: str) -> None:
    written = f"{number:,}" if separated else str(number)
    for text in (f"so 1 + 1 = 2\n#### {written}{after}", f"\\boxed{{{written}}}", f"The answer is {written}{after}"):
        assert extract_answer(text).answer == str(number)


@given(st.decimals(-10000, 10000, places=3, allow_nan=False))
def test_any_decimal_comes_back(number: object) -> None:
    assert extract_answer(f"#### {number}").answer == str(number)


@given(st.text(), st.integers(0, 999))
def test_thoughts_never_count(thought: str, number: int) -> None:
    thought = thought.replace("think>", "")
    assert extract_answer(f"<think>{thought}</think>#### {number}").answer == str(number)
    assert extract_answer(f"<think>{thought}#### {number}").truncated


@given(st.text(alphabet="0123456789 -.,/$%#{}\\boxedfraanswer is=\n", max_size=80))
def test_any_text_gives_an_answer_or_none(text: str) -> None:
    found = extract_answer(text)
    assert (found.where == "none") == (found.answer == "")
    if found.where == "last_number":
        assert re.fullmatch(r"-?[\d.]+([eE][-+]?\d+)?( ?\d+/\d+|/\d+)?%?", found.answer)
