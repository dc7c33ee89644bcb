"""The numbers that stand for words and names in the constructed weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from routelab.data.knowledge import OBJECT, SUBJECT, Knowledge, KnowledgeTokenizer, Task, Template
from routelab.theory.prefixes import NAME, Prefix


@dataclass(frozen=True)
class Feature:
    """One bit of a name: whether it plays a role in a task. ``role`` is key, value, subject or object."""

    task: int
    role: str
    names: frozenset[int]


@dataclass(frozen=True)
class Codes:
    """Integers for a language.

    ``word[w]``, 1 and up, is the weight of a word in the first head, and of :data:`NAME`. ``name[t]``, 1 and up, is the
    number of a name in the second. ``features`` are the bits of names that separate tasks and directions.
    """

    knowledge: Knowledge
    tokenizer: KnowledgeTokenizer
    ids: dict[str, int]
    word: dict[int, int]
    name: dict[int, int]
    features: tuple[Feature, ...]

    @classmethod
    def of(cls, knowledge: Knowledge, tokenizer: KnowledgeTokenizer) -> Codes:
        """Number the words so that the first words of one task are neighbours, in the order of the tasks."""
        ids = {symbol: number for number, symbol in enumerate(tokenizer.symbols)}
        firsts = (_symbol(template.words[0], ids) for task in knowledge.tasks for template in task.templates)
        words = dict.fromkeys([*firsts, *(ids[word] for word in sorted(knowledge.words)), NAME])
        return cls(
            knowledge,
            tokenizer,
            ids,
            {word: number for number, word in enumerate(words, start=1)},
            {ids[name]: number for number, name in enumerate(sorted(knowledge.names), start=1)},
            tuple(feature for index in range(len(knowledge.tasks)) for feature in _features(index, knowledge, ids)),
        )

    @cached_property
    def names(self) -> frozenset[int]:
        """The token ids of all names."""
        return frozenset(self.name)

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The templates as the first head sees them: whole shapes, each once."""
        return list(dict.fromkeys(self.shape(each) for task in self.knowledge.tasks for each in task.templates))

    def shape(self, template: Template) -> tuple[int, ...]:
        """A template as the first head sees it: token ids, and :data:`NAME` for both placeholders."""
        return tuple(_symbol(word, self.ids) for word in template.words)

    @cached_property
    def by_length(self) -> bool:
        """Whether a prefix's length tells its shape, because all templates agree word by word as far as they go."""
        longest = max(self.shapes, key=len)
        return all(shape == longest[: len(shape)] for shape in self.shapes)

    @cached_property
    def largest_sum(self) -> int:
        """``Z_max``: the largest ``1 + Σ_j word[w_j]`` of a template, the denominator of the first head's softmax."""
        return 1 + max(sum(self.word[symbol] for symbol in shape) for shape in self.shapes)

    @cached_property
    def name_bits(self) -> dict[int, int]:
        """The features of every name, bit *f* for feature *f*; 0 has none."""
        bits = {0: 0, **dict.fromkeys(self.name, 0)}
        for number, feature in enumerate(self.features):
            for name in feature.names:
                bits[name] |= 1 << number
        return bits

    @cached_property
    def task_bits(self) -> dict[int, int]:
        """The features that belong to each task, as a bit set."""
        bits: dict[int, int] = {}
        for number, feature in enumerate(self.features):
            bits[feature.task] = bits.get(feature.task, 0) | 1 << number
        return bits

    def signature(self, prefix: Prefix, sees_value: bool) -> int:
        """The features of a prefix's key, then, where a head sees it, those of its second name, as one bit set."""
        last = self.name_bits[prefix.last] if sees_value and prefix.names == 2 else 0
        return self.name_bits[prefix.key] | last << len(self.features)

    def text(self, shape: Sequence[int]) -> str:
        """A shape in words, with ``⋆`` for a name."""
        return " ".join("⋆" if symbol == NAME else self.tokenizer.symbols[symbol] for symbol in shape)


def key_sides(task: Task) -> list[str]:
    """Return the placeholders that are the key of a template of the task: one, or both."""
    used = {template.key for template in task.templates}
    return [side for side in (SUBJECT, OBJECT) if side in used]


def _symbol(word: str, ids: Mapping[str, int]) -> int:
    return NAME if word in (SUBJECT, OBJECT) else ids[word]


def _features(index: int, knowledge: Knowledge, ids: Mapping[str, int]) -> Iterable[Feature]:
    task = knowledge.tasks[index]
    subjects, objects = (frozenset(ids[knowledge.symbol(pair[side])] for pair in task.pairs) for side in (0, 1))
    sides = key_sides(task)
    if len(sides) == 2:
        roles = [("key", subjects | objects), ("subject", subjects), ("object", objects)]
    else:
        key, value = (subjects, objects) if sides == [SUBJECT] else (objects, subjects)
        roles = [("key", key), ("value", value)]
    return [Feature(index, role, names) for role, names in roles]
