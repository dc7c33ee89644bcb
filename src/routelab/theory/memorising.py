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
from routelab.theory.gates import Gate, Gates
from routelab.theory.neurons import Bit, Neuron
from routelab.theory.prefixes import NAME, Prefix
from routelab.theory.stream import Stream

#: Facts of one key, and the words of one shape, may outvote each other this often; then prefixes are settled singly.
FACT_LEVELS, WORD_LEVELS = 3, 4
WORD, CONDITIONAL = FACT_LEVELS, FACT_LEVELS + 1
SINGLE = CONDITIONAL + WORD_LEVELS
LEVELS = SINGLE + 1
#: A gate is at least 1 where it is open; this leaves room for rounding.
_FULL = 0.999


@dataclass(frozen=True)
class Memoriser:
    """Makes the neurons of one feed-forward network.

    With ``circuits`` every task gets facts of its own also where a prefix is of several tasks, so that its neurons
    alone solve it, and neurons keep off the prefixes of other tasks. Otherwise a prefix is its first task's.
    """

    stream: Stream
    gates: Gates
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
        yield from self._say(plain, said, self._signed(group), {})

    def _conditional(self, shape: tuple[int, ...], rest: Sequence[Prefix], group: Sequence[Prefix]) -> Iterator[Neuron]:
        """Settle the ``rest`` of a shape, whose next word depends on the names, without unsettling the others."""
        signed = self._signed(group) if rest else []
        left, level = list(rest), CONDITIONAL
        spoken: dict[tuple[int, ...], int] = {}
        while left:
            token = self._commonest(left)
            meant = [prefix for prefix in left if token in prefix.valid]
            left = [prefix for prefix in left if token not in prefix.valid]
            yield from self._say(Neuron(token, level, (), shape), meant, signed, spoken)
            if level < SINGLE - 1:
                level, spoken = level + 1, {}

    def _say(
        self,
        neuron: Neuron,
        meant: Sequence[Prefix],
        signed: Sequence[tuple[Prefix, int]],
        spoken: dict[tuple[int, ...], int],
    ) -> Iterator[Neuron]:
        """Restrict a neuron to prefixes of its shape, by one condition on their names if one does, else task by task;
        a part that features do not tell from the others is said prefix by prefix."""
        whole = self._boxed(neuron, meant, signed, spoken)
        if whole is not None:
            yield whole
            return
        for part in self._parts(meant, neuron.token):
            boxed = self._boxed(neuron, part, signed, spoken)
            yield from [boxed] if boxed is not None else [self._single(prefix, neuron.token) for prefix in part]

    def _boxed(
        self,
        neuron: Neuron,
        part: Sequence[Prefix],
        signed: Sequence[tuple[Prefix, int]],
        spoken: dict[tuple[int, ...], int],
    ) -> Neuron | None:
        """Restrict a neuron to names with the features that those of ``part`` share, and note where it speaks.

        None if that would be wrong, or another word than was ``spoken``, on one of the prefixes of its shape.
        """
        if not self.stream.reads_features:
            return None
        box, token = self._box(part), neuron.token
        matched = [prefix for prefix, signature in signed if box.holds(signature)]
        if any(token not in each.valid or spoken.get(each.tokens, token) != token for each in matched):
            return None
        spoken |= {prefix.tokens: token for prefix in matched}
        return replace(neuron, tasks=_tasks(matched), bits=box.bits(self.codes, signed))

    def _signed(self, group: Iterable[Prefix]) -> list[tuple[Prefix, int]]:
        return [(prefix, self.codes.signature(prefix, self.stream.sees_value)) for prefix in group]

    def _parts(self, prefixes: Sequence[Prefix], token: int) -> Iterator[list[Prefix]]:
        """Split prefixes by the first task that allows a token and by what their names are in it."""
        parts: dict[tuple[int, int], list[Prefix]] = defaultdict(list)
        for prefix in prefixes:
            task = next(task for task, own in zip(prefix.tasks, prefix.own, strict=True) if token in own)
            bits = self.codes.task_bits[task]
            sides = self.codes.signature(prefix, self.stream.sees_value) & (bits | bits << len(self.codes.features))
            parts[task, sides].append(prefix)
        yield from parts.values()

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
            fact = Neuron(min(shared), 0, _tasks(prefixes), key=key)
            if not self.circuits or all(set(fact.tasks) & set(each.tasks) for each in everywhere):
                yield fact
                return
        facts = list(self._facts_by_task(key, prefixes))
        for _ in range(FACT_LEVELS - 1):
            for prefix in prefixes:
                self._raise(facts, prefix)
        for prefix in prefixes:
            alone = [[fact for fact in facts if task in fact.tasks] for task, _ in self._owners(prefix)]
            if not all(self._settles(each, prefix) for each in (facts, *alone)):
                yield self._single(prefix, min(self._values(prefix.valid)))
        yield from facts

    def _facts_by_task(self, key: int, prefixes: Sequence[Prefix]) -> Iterator[Neuron]:
        by_task: dict[int, list[tuple[frozenset[int], Prefix]]] = defaultdict(list)
        for prefix in prefixes:
            for task, own in self._owners(prefix):
                by_task[task].append((self._values(own), prefix))
        for task, left in by_task.items():
            while left:
                token = _most(values for values, _ in left)
                places = tuple(sorted(prefix.shape for values, prefix in left if token in values))
                left = [(values, prefix) for values, prefix in left if token not in values]
                fact = Neuron(token, 0, (task,), key=key)
                gated = self.gates.gate(task, key, places) is not None
                yield from [replace(fact, places=places)] if gated else [replace(fact, shape=shape) for shape in places]

    def gate(self, neuron: Neuron) -> Gate | None:
        """Return the gate of a neuron's places."""
        if neuron.key is None or not neuron.places:
            return None
        return self.gates.gate(neuron.tasks[0], neuron.key, neuron.places)

    def _strength(self, fact: Neuron, prefix: Prefix) -> float:
        """What a fact with places or a shape is on a prefix of its key."""
        gate = self.gate(fact)
        return float(fact.shape == prefix.shape) if gate is None else gate.values[prefix.shape]

    def _settles(self, facts: Iterable[Neuron], prefix: Prefix) -> bool:
        """Whether those of the highest level that fire all say one valid token, one of them fully."""
        fired = [(fact, strength) for fact in facts if (strength := self._strength(fact, prefix)) > 0]
        top = max((fact.level for fact, _ in fired), default=0)
        said = {fact.token for fact, _ in fired if fact.level == top}
        full = any(strength >= _FULL for fact, strength in fired if fact.level == top)
        return len(said) == 1 and said <= prefix.valid and full

    def _raise(self, facts: list[Neuron], prefix: Prefix) -> None:
        """Lift the first fact that is right for a prefix above those that say something else there."""
        strengths = [self._strength(fact, prefix) for fact in facts]
        right = [at for at, fact in enumerate(facts) if strengths[at] >= _FULL and fact.token in prefix.valid]
        if not right:
            return
        first = facts[right[0]]
        fired = [fact for fact, strength in zip(facts, strengths, strict=True) if strength > 0]
        above = max((fact.level + 1 for fact in fired if fact.token != first.token), default=0)
        facts[right[0]] = replace(first, level=min(max(first.level, above), FACT_LEVELS - 1))

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


def _without_value(prefixes: Iterable[Prefix]) -> list[Prefix]:
    """Make one of the prefixes with both names that differ in the second alone: what is valid after all of them."""
    found: dict[tuple[tuple[int, ...], int], Prefix] = {}
    for prefix in prefixes:
        seen = found.get((prefix.shape, prefix.key))
        if seen is not None:
            tasks = tuple(sorted({*seen.tasks, *prefix.tasks}))
            valid = seen.valid & prefix.valid
            prefix = replace(prefix, valid=valid, tasks=tasks, own=(valid,) * len(tasks))
        found[prefix.shape, prefix.key] = prefix
    return list(found.values())


def _tasks(prefixes: Iterable[Prefix]) -> tuple[int, ...]:
    return tuple(sorted({task for prefix in prefixes for task in prefix.tasks}))


def _most(options: Iterable[Iterable[int]]) -> int:
    counts = Counter(token for valid in options for token in valid)
    return min(counts, key=lambda token: (-counts[token], token))
