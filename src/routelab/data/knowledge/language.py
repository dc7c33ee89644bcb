"""The data model of arXiv 2606.14398, section 3.1: templates over words and two placeholders, tables of pairs.

A symbol is one string: a word of a template, or the name of an entity, which is atomic whatever it contains. A name
that is also a template word is written ``[name]``, so that words and names never coincide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from routelab.data.knowledge.trie import Trie
from routelab.errors import DataError

SUBJECT, OBJECT = "⋆1", "⋆2"
_ALIASES = (("[X]", SUBJECT), ("[Y]", OBJECT))
_UNKNOWN = re.compile(r"⋆(?![12](?!\d))\S*|\[[A-Z]\]")
_WORD = re.compile(r"⋆[12]|['’]s\b|\w+(?:[-'’]\w+)*|[^\w\s]")


def words_of(text: str) -> tuple[str, ...]:
    """Split text into words: at white space, every punctuation mark and a possessive ``'s`` a word of its own."""
    return tuple(_WORD.findall(text))


@dataclass(frozen=True)
class Template:
    """Words with ``⋆1`` (subject) and ``⋆2`` (object), once each. ``key`` is the one that is read first."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        for placeholder in (SUBJECT, OBJECT):
            count = self.words.count(placeholder)
            if count != 1:
                raise DataError(
                    f"the template {' '.join(self.words)!r} has {placeholder} {count} times instead of once"
                )

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read ``"⋆1 is in ⋆2."`` or ``"[X] is in [Y]."``.

        Raises:
            DataError: another placeholder, or one of the two not exactly once.
        """
        for alias, placeholder in _ALIASES:
            text = text.replace(alias, f" {placeholder} ")
        unknown = _UNKNOWN.search(text)
        if unknown:
            raise DataError(f"unknown placeholder {unknown[0]!r}; templates know ⋆1 and ⋆2, or [X] and [Y]")
        return cls(words_of(text))

    @property
    def key(self) -> str:
        """The first placeholder: what a reader knows when the other is to be said."""
        return min(SUBJECT, OBJECT, key=self.words.index)

    def fill(self, subject: str, object_: str) -> tuple[str, ...]:
        """Return ``τ[k, v]``: both placeholders replaced at once."""
        return tuple(subject if word == SUBJECT else object_ if word == OBJECT else word for word in self.words)

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class Task:
    """One knowledge task: templates T(k) and a table Δ_k of (subject, object). A subject may have several objects.

    Raises:
        DataError: no template or no pair, an empty name, or either of them given twice.
    """

    name: str
    templates: tuple[Template, ...]
    pairs: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for what, rows in (("template", self.templates), ("pair", self.pairs)):
            if not rows:
                raise DataError(f"task {self.name!r} has no {what}")
            twice = [row for row, count in Counter(rows).items() if count > 1]
            if twice:
                raise DataError(f"task {self.name!r} has the {what} {twice[0]!s} twice")
        for pair in self.pairs:
            if not all(name.strip() for name in pair):
                raise DataError(f"task {self.name!r}: the pair {pair!r} has an empty name")

    @property
    def complexity(self) -> int:
        """``c(k) = Σ_τ |τ| + |Δ_k|``, section 3.1."""
        return sum(len(template.words) for template in self.templates) + len(self.pairs)


@dataclass(frozen=True)
class Sentence:
    """``τ[k, v]`` as symbols, and where it comes from: indices of its task, and of template and pair in that task."""

    task: int
    template: int
    pair: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Knowledge:
    """A set of tasks.

    Raises:
        DataError: no task, or two of one name.
    """

    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names:
            raise DataError("knowledge without a task")
        if len(set(names)) < len(names):
            raise DataError(f"two tasks are called {next(name for name in names if names.count(name) > 1)!r}")

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all templates."""
        found = {word for task in self.tasks for template in task.templates for word in template.words}
        return frozenset(found - {SUBJECT, OBJECT})

    def symbol(self, name: str) -> str:
        """Return the symbol of an entity: its name, in brackets where a template has that word."""
        return f"[{name}]" if name in self.words else name

    @cached_property
    def names(self) -> frozenset[str]:
        """The symbols of all entities."""
        return frozenset(self.symbol(name) for task in self.tasks for pair in task.pairs for name in pair)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Σ: the template words, then the symbols of the entities, each sorted."""
        return (*sorted(self.words), *sorted(self.names))

    @property
    def max_length(self) -> int:
        """L, the length of the longest template."""
        return max(len(template.words) for task in self.tasks for template in task.templates)

    def task_sentences(self, task: int) -> Iterator[Sentence]:
        """Yield ``D(k)`` of one task."""
        for t, template in enumerate(self.tasks[task].templates):
            for p, (subject, object_) in enumerate(self.tasks[task].pairs):
                yield Sentence(task, t, p, template.fill(self.symbol(subject), self.symbol(object_)))

    def sentences(self) -> list[Sentence]:
        """Return the sentences of all tasks; one that two tasks share comes once for each."""
        return [sentence for task in range(len(self.tasks)) for sentence in self.task_sentences(task)]

    @cached_property
    def trie(self) -> Trie:
        """V(prefix) over the union of all tasks."""
        return Trie(sentence.words for sentence in self.sentences())
