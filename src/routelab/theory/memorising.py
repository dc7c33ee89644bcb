"""From prefixes with their valid next tokens to the neurons that say one of them on each (Lemma A.4, made sparse).

A prefix is settled when, of the neurons that fire on it, those of the highest level all say one valid token. Levels:
facts (key -> value) lie below words (shape -> next word), these below words that depend on the names, and these below
neurons for one single prefix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from routelab.theory.codes import Codes
from routelab.theory.neurons import Bit, Neuron
from routelab.theory.prefixes import NAME, Prefix
from routelab.theory.stream import Stream

#: Facts of one key may outvote each other this often before single prefixes are settled one by one.
FACT_LEVELS = 3
WORD, CONDITIONAL, SINGLE = FACT_LEVELS, FACT_LEVELS + 1, FACT_LEVELS + 2
LEVELS = SINGLE + 1


@dataclass(frozen=True)
class Memoriser:
    """Makes the neurons of one feed-forward network.

    With ``circuits`` every task gets facts of its own also where a prefix is of several tasks, so that its neurons
    alone solve it, and neurons keep off the prefixes of other tasks. Otherwise a prefix is its first task's.
    """

    stream: Stream
    circuits: bool

    @property
    def codes(self) -> Codes:
        return self.stream.codes

    def neurons(self, prefixes: Sequence[Prefix]) -> list[Neuron]:
        """Return neurons that settle every one of the prefixes. On others they may do anything."""
        by_shape: dict[tuple[int, ...], list[Prefix]] = defaultdict(list)
        by_key: dict[int, list[Prefix]] = defaultdict(list)
        for prefix in prefixes if self.stream.sees_value else _without_value(prefixes):
            by_shape[prefix.shape].append(prefix)
        for prefix in prefixes:
            by_key[prefix.key].append(prefix)
        found: list[Neuron] = []
        facts: dict[int, list[Prefix]] = defaultdict(list)
        for shape, group in by_shape.items():
            if NAME not in shape:
                token = self._plainest(group[0].valid)
                found.append(Neuron(token, WORD, _tasks(group), shape))
                continue
            if any(prefix.valid <= self.codes.names for prefix in group):
                rest: list[Prefix] = []
                for prefix in group:
                    recalled = all(self._values(own) for _, own in self._owners(prefix))
                    (facts[prefix.key] if recalled else rest).append(prefix)
            else:
                token = self._commonest(group)
                said = [prefix for prefix in group if token in prefix.valid]
                rest = [prefix for prefix in group if token not in prefix.valid]
                found += self._common(shape, token, said, group)
            found += self._conditional(shape, rest, group)
        for key, group in facts.items():
            found += self._facts(key, group, by_key[key])
        return found

    def _common(
        self, shape: tuple[int, ...], token: int, said: Sequence[Prefix], group: Sequence[Prefix]
    ) -> Iterator[Neuron]:
        """Say the commonest word of a shape: always, or, if that disturbs other tasks' circuits, where it is right."""
        plain = Neuron(token, WORD, _tasks(said), shape)
        if not self.circuits or all(set(plain.tasks) & set(prefix.tasks) for prefix in group):
            yield plain
            return
        signed = [(prefix, self.codes.signature(prefix, self.stream.sees_value)) for prefix in group]
        whole = self._boxed(plain, said, signed)
        if whole is not None:
            yield whole
            return
        for part in self._parts(said):
            boxed = self._boxed(plain, part, signed)
            yield from [boxed] if boxed is not None else [self._single(prefix, token) for prefix in part]

    def _boxed(
        self,
        plain: Neuron,
        part: Sequence[Prefix],
        signed: Sequence[tuple[Prefix, int]],
    ) -> Neuron | None:
        """Restrict a neuron to names with the features that those of ``part`` share; None if it then says something
        wrong on one of the prefixes of its shape."""
        if not self.stream.reads_features:
            return None
        box = self._box(part)
        matched = [prefix for prefix, signature in signed if box.holds(signature)]
        if any(plain.token not in each.valid for each in matched):
            return None
        return replace(plain, tasks=_tasks(matched), bits=box.bits(self.codes, signed))

    def _conditional(self, shape: tuple[int, ...], rest: Sequence[Prefix], group: Sequence[Prefix]) -> Iterator[Neuron]:
        """Settle the ``rest`` of a shape, whose next word depends on the names, without unsettling the others."""
        signed = [(prefix, self.codes.signature(prefix, self.stream.sees_value)) for prefix in group] if rest else []
        spoken: dict[tuple[int, ...], int] = {}
        left = list(rest)
        while left:
            token = self._commonest(left)
            meant = [prefix for prefix in left if token in prefix.valid]
            left = [prefix for prefix in left if token not in prefix.valid]
            for part in self._parts(meant):
                box = self._box(part)
                matched = [prefix for prefix, signature in signed if box.holds(signature)]
                right = all(token in each.valid and spoken.get(each.tokens, token) == token for each in matched)
                if self.stream.reads_features and right:
                    spoken |= {prefix.tokens: token for prefix in matched}
                    yield Neuron(token, CONDITIONAL, _tasks(matched), shape, bits=box.bits(self.codes, signed))
                else:
                    yield from (self._single(prefix, token) for prefix in part)

    def _parts(self, prefixes: Sequence[Prefix]) -> Iterator[list[Prefix]]:
        """Split prefixes by their first task and what the names are in it, which is what features tell apart."""
        parts: dict[tuple[int, int], list[Prefix]] = defaultdict(list)
        for prefix in prefixes:
            parts[prefix.tasks[0], self._sides(prefix)].append(prefix)
        yield from parts.values()

    def _sides(self, prefix: Prefix) -> int:
        """The features of the prefix's names that belong to its first task."""
        own = self.codes.task_bits[prefix.tasks[0]]
        return self.codes.signature(prefix, self.stream.sees_value) & (own | own << len(self.codes.features))

    def _box(self, prefixes: Sequence[Prefix]) -> _Box:
        ones = zeros = (1 << 2 * len(self.codes.features)) - 1
        for prefix in prefixes:
            signature = self.codes.signature(prefix, self.stream.sees_value)
            ones &= signature
            zeros &= ~signature
        if prefixes[0].names < 2:
            zeros &= (1 << len(self.codes.features)) - 1
        return _Box(ones, zeros)

    def _single(self, prefix: Prefix, token: int) -> Neuron:
        last = prefix.last if self.stream.sees_value and prefix.names == 2 else None
        return Neuron(token, SINGLE, prefix.tasks, prefix.shape, prefix.key, last)

    def _facts(self, key: int, prefixes: Sequence[Prefix], everywhere: Sequence[Prefix]) -> Iterator[Neuron]:
        """Settle prefixes of one key by its values: one neuron if one value does, else one per task and value."""
        shared = frozenset.intersection(*(self._values(prefix.valid) for prefix in prefixes))
        if shared:
            fact = self._kept_off(Neuron(min(shared), 0, _tasks(prefixes), key=key), everywhere)
            if fact is not None:
                yield fact
                return
        facts = list(self._facts_by_task(key, prefixes, everywhere))
        fires = [[at for at, fact in enumerate(facts) if _fires(fact, prefix)] for prefix in prefixes]
        for _ in range(FACT_LEVELS - 1):
            for prefix, fired in zip(prefixes, fires, strict=True):
                _raise(facts, fired, prefix)
        for prefix, fired in zip(prefixes, fires, strict=True):
            together = [facts[at] for at in fired]
            alone = [[fact for fact in together if task in fact.tasks] for task, _ in self._owners(prefix)]
            if not all(_settle(each, prefix) for each in (together, *alone)):
                yield self._single(prefix, min(self._values(prefix.valid)))
        yield from facts

    def _facts_by_task(self, key: int, prefixes: Sequence[Prefix], everywhere: Sequence[Prefix]) -> Iterator[Neuron]:
        by_task: dict[int, list[tuple[frozenset[int], Prefix]]] = defaultdict(list)
        for prefix in prefixes:
            for task, own in self._owners(prefix):
                by_task[task].append((self._values(own), prefix))
        for task, left in by_task.items():
            while left:
                token = _most(values for values, _ in left)
                said = [prefix for values, prefix in left if token in values]
                left = [(values, prefix) for values, prefix in left if token not in values]
                yield from self._gated(Neuron(token, 0, (task,), key=key), said, everywhere)

    def _gated(self, fact: Neuron, said: Sequence[Prefix], everywhere: Sequence[Prefix]) -> Iterator[Neuron]:
        """Restrict a fact to where it is meant: by words that its prefixes do not have, or by their shapes."""
        shapes = list(dict.fromkeys(prefix.shape for prefix in said))
        if self.stream.reads_words:
            fact = replace(fact, absent=tuple(sorted(frozenset(self.codes.word).difference(*shapes))))
        gated = self._kept_off(fact, everywhere)
        yield from [gated] if gated is not None else [replace(fact, absent=(), shape=shape) for shape in shapes]

    def _kept_off(self, fact: Neuron, everywhere: Sequence[Prefix]) -> Neuron | None:
        """Return the fact, silent after a second name if it must be, if it then keeps off other tasks' prefixes."""
        if not self._strays(fact, everywhere):
            return fact
        alone = replace(fact, alone=True)
        return alone if self.stream.reads_words and not self._strays(alone, everywhere) else None

    def _strays(self, fact: Neuron, everywhere: Sequence[Prefix]) -> bool:
        """Whether, in circuits, a fact would fire on a prefix of none of its tasks."""
        strangers = (each for each in everywhere if not set(fact.tasks) & set(each.tasks))
        return self.circuits and any(_fires(fact, each) for each in strangers)

    def _owners(self, prefix: Prefix) -> list[tuple[int, frozenset[int]]]:
        """The tasks that must know a prefix, each with what may follow in it."""
        owners = list(zip(prefix.tasks, prefix.own, strict=True))
        return owners if self.circuits else owners[:1]

    def _values(self, tokens: frozenset[int]) -> frozenset[int]:
        return tokens & self.codes.names

    def _commonest(self, prefixes: Sequence[Prefix]) -> int:
        return _most(prefix.valid - self.codes.names for prefix in prefixes)

    def _plainest(self, valid: frozenset[int]) -> int:
        """A word rather than a name, then the first."""
        return min(valid, key=lambda token: (token in self.codes.name, token))


@dataclass(frozen=True)
class _Box:
    """The signatures that have all bits of ``ones`` and none of ``zeros``."""

    ones: int
    zeros: int

    def holds(self, signature: int) -> bool:
        return signature & self.ones == self.ones and not signature & self.zeros

    def bits(self, codes: Codes, signed: Iterable[tuple[Prefix, int]]) -> tuple[Bit, ...]:
        """The fewest conditions, found greedily, that leave out every signature outside the box."""
        width, outside = len(codes.features), {signature for _, signature in signed if not self.holds(signature)}
        found = []
        while outside:
            options = [at for at in range(2 * width) if (self.ones | self.zeros) >> at & 1]
            left = {
                at: [signature for signature in outside if (signature >> at & 1) == (self.ones >> at & 1)]
                for at in options
            }
            best = min(options, key=lambda at: len(left[at]))
            outside = set(left[best])
            found.append(Bit("key" if best < width else "last", best % width, bool(self.ones >> best & 1)))
        return tuple(found)


def _fires(fact: Neuron, prefix: Prefix) -> bool:
    """Whether a fact fires on a prefix of its key."""
    names = (1,) if fact.alone else (1, 2)
    return prefix.names in names and fact.shape in (None, prefix.shape) and not set(fact.absent) & set(prefix.shape)


def _settle(fired: Sequence[Neuron], prefix: Prefix) -> bool:
    """Whether those of the highest level all say one valid token."""
    top = max((fact.level for fact in fired), default=0)
    said = {fact.token for fact in fired if fact.level == top}
    return len(said) == 1 and said <= prefix.valid


def _raise(facts: list[Neuron], fired: Sequence[int], prefix: Prefix) -> None:
    """Lift the first fact that is right for a prefix above those that say something else there."""
    right = next((at for at in fired if facts[at].token in prefix.valid), None)
    if right is None:
        return
    rivals = [facts[at].level for at in fired if facts[at].token != facts[right].token]
    level = min(max([facts[right].level, *(rival + 1 for rival in rivals)]), FACT_LEVELS - 1)
    facts[right] = replace(facts[right], level=level)


def _without_value(prefixes: Iterable[Prefix]) -> list[Prefix]:
    """Make one of the prefixes with both names that differ in the second alone: what is valid after all of them."""
    found: dict[tuple[tuple[int, ...], int], Prefix] = {}
    for prefix in prefixes:
        seen = found.get((prefix.shape, prefix.key))
        if seen is not None:
            tasks = tuple(sorted({*seen.tasks, *prefix.tasks}))
            prefix = replace(prefix, valid=seen.valid & prefix.valid, tasks=tasks)
        found[prefix.shape, prefix.key] = prefix
    return list(found.values())


def _tasks(prefixes: Iterable[Prefix]) -> tuple[int, ...]:
    return tuple(sorted({task for prefix in prefixes for task in prefix.tasks}))


def _most(options: Iterable[Iterable[int]]) -> int:
    counts = Counter(token for valid in options for token in valid)
    return min(counts, key=lambda token: (-counts[token], token))
