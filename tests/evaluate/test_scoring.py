from __future__ import annotations

import pytest

from routelab.data.hybrid import Target
from routelab.evaluate.scoring import extract_choice, find_answer, named_choice, target_is_right


@pytest.mark.parametrize(
    ("text", "letter", "where"),
    [
        ("So it is B.\n#### C", "C", "hash"),
        ("#### (B)", "B", "hash"),
        ("#### **D**", "D", "hash"),
        ("#### Because of this", "", "none"),
        (r"\boxed{B}", "B", "boxed"),
        (r"$\boxed{\text{(C)}}$", "C", "boxed"),
        ("The answer is (B) paralysis.", "B", "phrase"),
        ("**Answer:** B. Hair", "B", "phrase"),
        ("The correct choice would be C because of it", "C", "phrase"),
        ("The answer is A because of it", "A", "phrase"),
        ("The answer is A.", "A", "phrase"),
        ("**Answer:** A recessive maxilla", "", "none"),
        ("The answer is Because", "", "none"),
        ("Option A is wrong. Option D is right.", "D", "phrase"),
        ("B", "B", "phrase"),
        ("B) Hair in the nose", "B", "phrase"),
        ("A cat sat.", "", "none"),
        ("E", "", "none"),
        ("<think>The answer is A.</think>The answer is B.", "B", "phrase"),
        ("", "", "none"),
    ],
)
def test_letters(text: str, letter: str, where: str) -> None:
    found = extract_choice(text, "ABCD")
    assert (found.answer, found.where, found.truncated) == (letter, where, False)


def test_a_thought_cut_off_has_no_answer() -> None:
    assert extract_choice("<think>The answer is A.").truncated


def test_free_answers_and_letters() -> None:
    assert find_answer("The answer is 5").answer == "5"
    assert find_answer("The answer is B", "ABCD").answer == "B"


CHOICES = ("eight weeks", "ten weeks", "ten weeks or more", "it depends.")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Eight weeks is too early. **Answer:** Ten Weeks.", "ten weeks"),
        ("The answer is ten weeks or more.", "ten weeks or more"),
        ("It depends", "it depends."),
        ("Eight weeks? No, ten weeks.", None),
        ("The answer: it depends. Not eight weeks.", "it depends."),
        ("No idea", None),
    ],
)
def test_choices_named_in_words(text: str, named: str | None) -> None:
    assert named_choice(text, CHOICES) == named


def target(answer: str, gold: str | None, choices: tuple[str, ...] = ()) -> Target:
    return Target("a", ({"role": "user", "content": "q"},), "no_think", answer, gold=gold, choices=choices)


@pytest.mark.parametrize(
    ("candidate", "right"),
    [
        (target(r"so \boxed{\frac{1}{2}}", "0.5"), True),
        (target(r"so \boxed{x + 1}", "1 + x"), True),
        (target("#### 3", "4"), False),
        (target("#### 3", None), False),
        (target("The answer is B.", "ten weeks", CHOICES), True),
        (target("The answer is ten weeks.", "ten weeks", CHOICES), True),
        (target("The answer is ten weeks.", "eight weeks", CHOICES), False),
        (target("No idea", "eight weeks", CHOICES), False),
    ],
)
def test_the_check_of_a_hybrid_corpus(candidate: Target, right: bool) -> None:
    assert target_is_right(candidate) is right
