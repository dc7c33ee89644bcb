"""A neuron of the construction: it says one token, exactly where all of its conditions hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from routelab.theory.codes import Codes
from routelab.theory.stream import Row, Stream


@dataclass(frozen=True)
class Bit:
    """A condition on the name that a head sees (``"key"`` or ``"last"``): one of its features is set, or is not."""

    head: str
    feature: int
    wanted: bool


@dataclass(frozen=True)
class Neuron:
    """``relu(1 - 2 Σ penalties)``: 1 where every condition holds, 0 elsewhere.

    Conditions that are None or empty do not apply: the shape of the prefix, its key, its latest name, bits of these
    names, words that the prefix must not have, and whether it must not have a second name. ``level`` says how far
    its output goes: a neuron outvotes those of lower levels. ``tasks`` are those whose circuit it is part of.
    """

    token: int
    level: int
    tasks: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    key: int | None = None
    last: int | None = None
    bits: tuple[Bit, ...] = ()
    absent: tuple[int, ...] = ()
    alone: bool = False

    def row(self, stream: Stream) -> Row:
        """Return the weights and the bias before the ReLU."""
        penalties = Row({})
        if self.shape is not None:
            penalties += stream.not_shape(self.shape)
        for head, name in (("key", self.key), ("last", self.last)):
            if name is not None:
                penalties += stream.not_name(head, name)
        for bit in self.bits:
            penalties += stream.not_bit(bit.head, bit.feature, bit.wanted)
        for word in self.absent:
            penalties += stream.has_word(word)
        if self.alone:
            penalties += stream.has_second_name()
        return Row({at: -2 * value for at, value in penalties.coefficients.items()}, 1 - 2 * penalties.constant)

    def meaning(self, codes: Codes) -> str:
        """Say in words when it fires and what it says."""
        symbols, parts = codes.tokenizer.symbols, []
        if self.shape is not None:
            parts.append(f"prefix {codes.text(self.shape)!r}")
        parts += [f"{head} {symbols[name]!r}" for head, name in (("key", self.key), ("last", self.last)) if name]
        for bit in self.bits:
            feature = codes.features[bit.feature]
            task = codes.knowledge.tasks[feature.task].name
            parts.append(f"{bit.head} is {'' if bit.wanted else 'not '}a {feature.role} of {task}")
        if self.absent:
            parts.append("none of the words " + ", ".join(symbols[word] for word in self.absent if word > 0))
        if self.alone:
            parts.append("no second name")
        return f"{' and '.join(parts)} -> {symbols[self.token]}"

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values; :meth:`of` reads them."""
        return {
            "token": self.token,
            "level": self.level,
            "tasks": list(self.tasks),
            "shape": None if self.shape is None else list(self.shape),
            "key": self.key,
            "last": self.last,
            "bits": [[bit.head, bit.feature, bit.wanted] for bit in self.bits],
            "absent": list(self.absent),
            "alone": self.alone,
        }

    @classmethod
    def of(cls, values: dict[str, Any]) -> Neuron:
        return cls(
            int(values["token"]),
            int(values["level"]),
            tuple(values["tasks"]),
            None if values["shape"] is None else tuple(values["shape"]),
            values["key"],
            values["last"],
            tuple(Bit(head, feature, wanted) for head, feature, wanted in values["bits"]),
            tuple(values["absent"]),
            bool(values["alone"]),
        )
