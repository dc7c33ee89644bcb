"""Reflective words: the surface marks of thinking aloud, found by fixed rules."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from routelab.errors import DataError

#: Counted by the script that produced the published numbers of arXiv 2604.27201.
SCRIPT_WORDS = ("wait, ", "hmm", "okay", "alternatively", "let me think")
#: The examples that the text of arXiv 2604.27201 (section 4.1) gives.
PAPER_WORDS = ("wait", "hmm", "alternatively")

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class ReflectiveWords:
    """Counts reflective words: whole words or phrases, case and white space folded, none counted twice.

    "Whole" means that no letter, digit or underscore stands directly before or after; a white space or comma that
    belongs to a word has to be there: ``"wait, "`` is found in ``"Wait,\\nno"``, but not in ``"wait for it"``.

    Raises:
        DataError: a word is blank, or is listed twice.
    """

    words: tuple[str, ...] = SCRIPT_WORDS
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folded = tuple(_fold(word) for word in self.words)
        if not all(word.strip() for word in folded):
            raise DataError(f"a reflective word must not be blank: {list(self.words)!r}")
        if len(set(folded)) < len(folded):
            raise DataError(f"a reflective word is listed twice: {list(self.words)!r}")
        object.__setattr__(self, "words", folded)
        longest_first = sorted(folded, key=len, reverse=True)
        object.__setattr__(self, "_pattern", re.compile("|".join(map(_whole, longest_first)) or r"(?!)"))

    def by_word(self, text: str) -> dict[str, int]:
        """Return how often each word occurs in ``text``, zeros included."""
        found = Counter(self._pattern.findall(_fold(text)))
        return {word: found[word] for word in self.words}

    def count(self, text: str) -> int:
        """Return how many reflective words ``text`` holds: the paper's #Refl. of one answer."""
        return sum(1 for _ in self._pattern.finditer(_fold(text)))


def _fold(text: str) -> str:
    return _SPACE.sub(" ", text).casefold()


def _whole(word: str) -> str:
    before = r"(?<!\w)" if re.match(r"\w", word) else ""
    after = r"(?!\w)" if re.search(r"\w$", word) else ""
    return f"{before}{re.escape(word)}{after}"
