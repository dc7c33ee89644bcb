from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelab.data.reflection import PAPER_WORDS, SCRIPT_WORDS, ReflectiveWords
from routelab.errors import DataError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Wait, that is wrong.", 1),
        ("wait,\n\nthat is wrong", 1),
        ("Please wait for the bus.", 0),
        ("await, see", 0),
        ("wait,no", 0),
        ("Hmm. HMM! hmm", 3),
        ("hmmm, chmm, hmm2", 0),
        ("Okay so: let  me\nthink. Alternatively, okay.", 4),
        ("let me thinking", 0),
        ("", 0),
    ],
)
def test_words_of_the_script(text: str, count: int) -> None:
    assert ReflectiveWords().count(text) == count


def test_by_word_names_every_word() -> None:
    found = ReflectiveWords().by_word("Okay. Wait, wait, hmm.")
    assert found == {"wait, ": 2, "hmm": 1, "okay": 1, "alternatively": 0, "let me think": 0}
    assert ReflectiveWords(PAPER_WORDS).by_word("Wait. Okay.") == {"wait": 1, "hmm": 0, "alternatively": 0}


def test_a_phrase_inside_a_longer_one_counts_once() -> None:
    words = ReflectiveWords(("let me", "let me think"))
    assert words.by_word("Let me think, let me see") == {"let me": 1, "let me think": 1}


def test_no_words_count_nothing_and_bad_words_are_refused() -> None:
    assert ReflectiveWords(()).count("wait, hmm") == 0
    with pytest.raises(DataError, match="blank"):
        ReflectiveWords(("hmm", " "))
    with pytest.raises(DataError, match="twice"):
        ReflectiveWords(("hmm", "HMM"))


@given(st.lists(st.sampled_from(["wait", ",", " ", "hmm", "okay", "x", "\n", "let me think", ".", "Alternatively"])))
def test_equals_counting_word_by_word(parts: list[str]) -> None:
    """None of the script's words can overlap another, so counting each alone is an oracle."""
    text = "".join(parts)
    folded = re.sub(r"\s+", " ", text).lower()
    alone = 0
    for word in SCRIPT_WORDS:
        for start in range(len(folded)):
            before = folded[start - 1 : start]
            after = folded[start + len(word) : start + len(word) + 1]
            inside = re.match(r"\w", before) or (word[-1].isalpha() and re.match(r"\w", after))
            alone += folded.startswith(word, start) and not inside
    assert ReflectiveWords().count(text) == alone
