"""Every prefix of a knowledge, with what may follow it and the tasks it belongs to: the domain of the theorems."""

from __future__ import annotations

from dataclasses import dataclass

from routelab.data.knowledge import Knowledge, KnowledgeTokenizer

#: Stands for any entity name in the shape of a prefix.
NAME = -1


@dataclass(frozen=True, slots=True)
class Prefix:
    """One prefix of a sentence.

    ``tokens`` are its token ids without the begin token. ``shape`` is the same with :data:`NAME` for every name: all
    that the first head may see. ``key`` is its first name and ``last`` its latest, 0 where there is none. ``valid`` is
    V(prefix), and ``tasks`` those that have a sentence which begins like this, in order; ``own`` is V of each of them.
    """

    tokens: tuple[int, ...]
    shape: tuple[int, ...]
    key: int
    last: int
    valid: frozenset[int]
    tasks: tuple[int, ...]
    own: tuple[frozenset[int], ...]

    @property
    def names(self) -> int:
        """How many names the prefix has: 0, 1 or 2."""
        return self.shape.count(NAME)


def prefixes_of(knowledge: Knowledge, tokenizer: KnowledgeTokenizer) -> list[Prefix]:
    """Return the different prefixes of all sentences, the empty one first."""
    found: dict[tuple[int, ...], dict[int, set[int]]] = {}
    for sentence in knowledge.sentences():
        ids = tuple(tokenizer.encode_sentence(sentence.words)[1:])
        for length, following in enumerate(ids):
            found.setdefault(ids[:length], {}).setdefault(sentence.task, set()).add(following)
    first_name = tokenizer.vocab_size - len(knowledge.names)
    shared: dict[frozenset[int], frozenset[int]] = {}
    prefixes = []
    for tokens, by_task in found.items():
        names = [token for token in tokens if token >= first_name]
        key, last = (names[0], names[-1]) if names else (0, 0)
        tasks = tuple(sorted(by_task))
        own = [frozenset(by_task[task]) for task in tasks]
        valid, *own = [shared.setdefault(each, each) for each in (frozenset().union(*own), *own)]
        shape = tuple(NAME if token >= first_name else token for token in tokens)
        prefixes.append(Prefix(tokens, shape, key, last, valid, tasks, tuple(own)))
    return prefixes
