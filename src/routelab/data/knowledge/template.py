"""Templates: words with one place for the subject and one for the object (arXiv 2606.14398, section 3.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from routelab.data.knowledge.trie import BEGIN, END
from routelab.errors import DataError, closest

SUBJECT, OBJECT = "⋆1", "⋆2"
_ALIASES = {"[X]": SUBJECT, "[Y]": OBJECT}
_PLACES = (SUBJECT, OBJECT, *_ALIASES)
_PLACE = re.compile(r"⋆\d*|\[[^\[\]\s]*\]")
_FINAL = ".,;:!?…"


def words_of(text: str) -> tuple[str, ...]:
    """Split the text of a template: at white space, around every placeholder, and before a final punctuation mark.

    Punctuation elsewhere stays where it is written: ``"[Y], born there in [X]."`` has the words
    ``⋆2 "," born there in ⋆1 "."``, and ``"U.S. city"`` has two.

    Raises:
        DataError: a placeholder that is not one of ``⋆1 ⋆2 [X] [Y]``. Stars and brackets serve for nothing else.
    """
    words = _PLACE.sub(lambda match: f" {_ALIASES.get(match[0], match[0])} ", text).split()
    for word in words:
        if word not in (SUBJECT, OBJECT) and any(mark in word for mark in "⋆[]"):
            raise DataError(f"the template {text!r} has the unknown placeholder {word!r}{closest(word, _PLACES)}")
    if words and len(words[-1]) > 1 and words[-1][-1] in _FINAL:
        words[-1:] = [words[-1][:-1], words[-1][-1]]
    return tuple(words)


@dataclass(frozen=True)
class Template:
    """A template ``τ``: words, among them :data:`SUBJECT` and :data:`OBJECT` once each, in either order.

    Raises:
        DataError: a placeholder missing, repeated or unknown, or words that :meth:`parse` would split otherwise.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        text = " ".join(self.words)
        if words_of(text) != self.words:
            raise DataError(f"the words {self.words!r} of a template split further; Template.parse does it")
        for mark in (BEGIN, END):
            if mark in self.words:
                raise DataError(f"the template {text!r} has the word {mark!r}, which delimits sentences")
        for place, alias, role in ((SUBJECT, "[X]", "subject"), (OBJECT, "[Y]", "object")):
            count = self.words.count(place)
            if count != 1:
                raise DataError(f"the template {text!r} has {count} places for the {role}, not 1: {place} or {alias}")

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read ``"⋆1 is in ⋆2 ."`` or ``"[X] is in [Y]."``; :func:`words_of` says where words end."""
        return cls(words_of(text))

    @property
    def key(self) -> str:
        """The placeholder that is read first: whoever has read it can look up the other."""
        return min(SUBJECT, OBJECT, key=self.words.index)

    def fill(self, subject: str, object_: str) -> tuple[str, ...]:
        """Return ``τ[k, v]``: both placeholders replaced at once, each by one symbol."""
        values = {SUBJECT: subject, OBJECT: object_}
        return tuple(values.get(word, word) for word in self.words)

    def __str__(self) -> str:
        return " ".join(self.words)
