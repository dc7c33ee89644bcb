"""The data model of arXiv 2606.14398, section 3.1: tasks of templates and tables, and the sentences they make.

A *symbol* is one token: a word of a template, or an entity, which is atomic whatever its name contains. Words and
entities never coincide: an entity whose name is also a template word gets its name in brackets as its symbol.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

from routelab.data.knowledge.template import OBJECT, SUBJECT, Template
from routelab.data.knowledge.trie import BEGIN, END, Trie
from routelab.errors import DataError


@dataclass(frozen=True)
class Task:
    """A knowledge task ``k``: templates T(k) and a table Δ_k of (subject, object). A subject may have several objects.

    Raises:
        DataError: no template or no pair, one of them given twice, or a name that :func:`check_name` refuses.
    """

    name: str
    templates: tuple[Template, ...]
    pairs: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        for what, entries in (("template", self.templates), ("pair", self.pairs)):
            if not entries:
                raise DataError(f"task {self.name!r} has no {what}")
            twice = repeated(entries)
            if twice is not None:
                raise DataError(f"task {self.name!r} has the {what} {str(entries[twice])!r} twice")
        for pair in self.pairs:
            for name in pair:
                check_name(name)

    @property
    def complexity(self) -> int:
        """``c(k) = Σ_τ |τ| + |Δ_k|``; a placeholder counts as a word of its template."""
        return sum(len(template.words) for template in self.templates) + len(self.pairs)


@dataclass(frozen=True)
class Sentence:
    """``τ[k, v]`` as symbols, and its origin: indices of the task, and of template and pair within that task."""

    task: int
    template: int
    pair: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Knowledge:
    """A set K of tasks, in order. Tasks may share templates, entities and whole sentences.

    Raises:
        DataError: no task, or two of one name.
    """

    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise DataError("a knowledge has at least one task")
        names = [task.name for task in self.tasks]
        twice = repeated(names)
        if twice is not None:
            raise DataError(f"two tasks are called {names[twice]!r}")

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all templates, without the placeholders."""
        used = {word for task in self.tasks for template in task.templates for word in template.words}
        return frozenset(used - {SUBJECT, OBJECT})

    def symbol(self, name: str) -> str:
        """Return the symbol of the entity ``name``: the name, or ``[name]`` where it would be mistaken for another.

        That is where a template has the word, and where the name is in brackets already, so that no two names meet.
        """
        taken = name in self.words or (name.startswith("[") and name.endswith("]"))
        return f"[{name}]" if taken else name

    @cached_property
    def names(self) -> frozenset[str]:
        """The symbols of all entities; disjoint from :attr:`words`."""
        return frozenset(self.symbol(name) for task in self.tasks for pair in task.pairs for name in pair)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Σ: the template words, then the symbols of the entities, each sorted."""
        return (*sorted(self.words), *sorted(self.names))

    @property
    def max_length(self) -> int:
        """``L``, the words of the longest template, placeholders included."""
        return max(len(template.words) for task in self.tasks for template in task.templates)

    def sentences(self) -> list[Sentence]:
        """Return ``D(k)`` of every task, by task, template and pair; a sentence of two tasks is there for each."""
        return [
            Sentence(k, t, p, template.fill(self.symbol(subject), self.symbol(object_)))
            for k, task in enumerate(self.tasks)
            for t, template in enumerate(task.templates)
            for p, (subject, object_) in enumerate(task.pairs)
        ]

    @cached_property
    def trie(self) -> Trie:
        """V(prefix) over the union of all tasks."""
        return Trie(sentence.words for sentence in self.sentences())


def repeated(entries: Iterable[Hashable]) -> int | None:
    """Return the index of the first entry that was there before, or None."""
    seen: set[Hashable] = set()
    for index, entry in enumerate(entries):
        if entry in seen:
            return index
        seen.add(entry)
    return None


def check_name(name: str) -> None:
    """Refuse a blank name, and one that means something else in a template or a sentence."""
    if not name.strip():
        raise DataError(f"a name has at least one visible character, not {name!r}")
    if name in (SUBJECT, OBJECT, BEGIN, END):
        raise DataError(f"{name!r} is a placeholder, or the beginning or end of a sentence, and no name")
