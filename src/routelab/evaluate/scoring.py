"""Whether a text answers rightly: free answers by equivalence, lettered choices by their letter or their words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from routelab.evaluate.equivalence import equivalent
from routelab.evaluate.extract import Extracted, Where, extract_answer, spoken_part

if TYPE_CHECKING:
    from routelab.data.hybrid import Target

LETTERS = "ABCDEFGHIJ"
_MARK = r"[\s*_`$(\[{\"'“‘:]*(?:\\(?:text|mathrm|mathbf|textbf|boxed)\s*\{\s*\(?)?"
# What follows a letter is no letter, digit or apostrophe. An A before a word of lower case is an article, unless the
# word tells the reason for A.
_END = r"(?![\w'’])(?!(?<=A) +(?!(?:because|since|as|for|and)\b)[a-z])"
# Where a text claims a letter, by falling weight.
_CLAIMS: tuple[tuple[Where, str], ...] = (
    ("hash", r"####{mark}(?P<letter>[{letters}]){end}"),
    ("boxed", r"\\f?box(?:ed)?\s*\{{{mark}(?P<letter>[{letters}]){end}"),
    (
        "phrase",
        r"\b(?i:answer|choice|option)\b(?:[^.\n:=]{{0,40}}?\b(?i:is|be)\b|\s*[:=])?{mark}(?P<letter>[{letters}]){end}",
    ),
    ("phrase", r"^{mark}(?P<letter>[{letters}])(?:[).:*\]]|\s*$)"),
)
_SENTENCE = re.compile(r"(?<=[.!?\n])\s+")


def extract_choice(text: str, letters: str = LETTERS) -> Extracted:
    """Return which of ``letters`` a text picks, outside its thoughts; the last claim of the strongest kind counts.

    By falling strength: ``#### B``, ``\\boxed{B}``, "the answer is (B)" (also "choice" and "option"), a line that
    begins with the letter and a bracket, dot or colon or holds nothing else. Letters are upper case.
    """
    spoken = spoken_part(text)
    if spoken is None:
        return Extracted("", True, "none")
    for where, claim in _CLAIMS:
        pattern = claim.format(mark=_MARK, end=_END, letters=re.escape(letters))
        found = re.findall(pattern, spoken, re.MULTILINE)
        if found:
            return Extracted(found[-1], False, where)
    return Extracted("", False, "none")


def find_answer(text: str, letters: str = "") -> Extracted:
    """Return the answer of ``text``: one of ``letters``, or a free answer where there are none."""
    return extract_choice(text, letters) if letters else extract_answer(text)


def named_choice(text: str, choices: Sequence[str]) -> str | None:
    """Return the one of ``choices`` that ``text`` names as its answer in words, outside its thoughts.

    The last sentence decides that speaks of an answer and names exactly one of them; else the text, if it names exactly
    one in all. Case and white space are folded.
    """
    spoken = spoken_part(text) or ""
    sentences = [sentence for sentence in _SENTENCE.split(spoken) if re.search(r"\banswer\b", sentence, re.IGNORECASE)]
    for part in [*reversed(sentences), spoken]:
        named = [choice for choice in choices if _folded(choice) in _folded(part)]
        longest = [choice for choice in named if not any(choice != o and _folded(choice) in _folded(o) for o in named)]
        if len(longest) == 1:
            return longest[0]
    return None


def target_is_right(target: Target) -> bool:
    """Return whether the answer of a target of a hybrid corpus is its gold answer; without one it is not.

    The check to give to ``routelab.data.hybrid.build_hybrid``: free answers go to math-verify
    (:func:`routelab.evaluate.equivalence.equivalent`), choices are known by their letter or their words.
    """
    if target.gold is None:
        return False
    if not target.choices:
        return equivalent(target.gold, extract_answer(target.answer).answer)
    letters = LETTERS[: len(target.choices)]
    letter = extract_choice(target.answer, letters).answer
    said = target.choices[letters.index(letter)] if letter else named_choice(target.answer, target.choices)
    return said == target.gold


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().rstrip(".")
