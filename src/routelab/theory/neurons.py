"""A neuron of the construction: it says one token, exactly where all of its conditions hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from routelab.theory.codes import Codes
from routelab.theory.gates import Gate
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
    names. With ``places``, shapes after which its task says a value, it is ``relu(gate - (highest + 1) Σ penalties)``
    of their gate instead. ``level`` says how far its output goes: a neuron outvotes those of lower levels. ``tasks``
    are those whose circuit it is part of.
    """

    token: int
    level: int
    tasks: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    key: int | None = None
    last: int | None = None
    bits: tuple[Bit, ...] = ()
    places: tuple[tuple[int, ...], ...] = ()

    def row(self, stream: Stream, gate: Gate | None) -> Row:
        """Return the weights and the bias before the ReLU; ``gate`` is that of the places."""
        penalties = Row({})
        if self.shape is not None:
            penalties += stream.not_shape(self.shape)
        for head, name in (("key", self.key), ("last", self.last)):
            if name is not None:
                penalties += stream.not_name(head, name)
        for bit in self.bits:
            penalties += stream.not_bit(bit.head, bit.feature, bit.wanted)
        if gate is not None:
            return gate.row + penalties.scaled(-1 - gate.highest)
        return Row({}, 1.0) + penalties.scaled(-2.0)

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
        if self.places:
            parts.append("after " + " or ".join(repr(codes.text(shape)) for shape in self.places))
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
            "places": [list(shape) for shape in self.places],
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
            tuple(tuple(shape) for shape in values["places"]),
        )
