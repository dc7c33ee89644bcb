"""Linear gates on the template head: open where a task says a value, closed on all that is not of this task.

The paper keeps off-task neurons silent by a negative bias. A bias is a constant, so it cannot do that for a key that
two tasks share; a direction in the output of the template head can, where one separates the two sets of shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from routelab.data.knowledge import OBJECT, SUBJECT
from routelab.theory.codes import Codes, key_sides
from routelab.theory.prefixes import NAME
from routelab.theory.stream import Row, Stream

_ROUNDS = 300
_POSITIVE, _NEGATIVE = 0.5, -0.25


@dataclass(frozen=True)
class Gate:
    """An affine function of ``A'``: at least 1 where it is open, negative where it is closed, never above ``highest``.

    ``values`` are those at every shape.
    """

    row: Row
    highest: float
    values: Mapping[tuple[int, ...], float]


@dataclass(frozen=True)
class Gates:
    """Finds gates for the shapes of a language, each once."""

    stream: Stream
    found: dict[tuple[int, str, tuple[tuple[int, ...], ...]], Gate | None] = field(default_factory=dict)

    @property
    def codes(self) -> Codes:
        return self.stream.codes

    @cached_property
    def owners(self) -> dict[tuple[int, ...], set[tuple[int, str]]]:
        """The tasks, each with the placeholder that is its key, of every shape of a prefix."""
        found: dict[tuple[int, ...], set[tuple[int, str]]] = {}
        for number, task in enumerate(self.codes.knowledge.tasks):
            for template in task.templates:
                shape = self.codes.shape(template)
                for end in range(len(shape) + 1):
                    found.setdefault(shape[:end], set()).add((number, template.key))
        return found

    def gate(self, task: int, key: int, places: tuple[tuple[int, ...], ...]) -> Gate | None:
        """Return a gate that is open on the shapes ``places``, closed on those with both names and on those that no
        template of the task with this key begins with, anything on the others; None where none is found."""
        sides = self._sides(task, key)
        if (task, sides, places) not in self.found:
            self.found[task, sides, places] = None if self.codes.by_length else self._find(task, sides, places)
        return self.found[task, sides, places]

    def _sides(self, task: int, key: int) -> str:
        """The placeholders of the task's templates that the key can fill as their first."""
        roles = {feature.role for feature in self.codes.features if feature.task == task and key in feature.names}
        both = [side for side, role in ((SUBJECT, "subject"), (OBJECT, "object")) if role in roles]
        return "".join(both or key_sides(self.codes.knowledge.tasks[task]))

    def _find(self, task: int, sides: str, places: tuple[tuple[int, ...], ...]) -> Gate | None:
        wanted = np.array([self._wanted(shape, places, task, sides) for shape in self.owners])
        scale = np.maximum(np.abs(self._features).max(0), 1e-12)
        inputs = self._features / scale
        weights = _separate(inputs, wanted)
        values = inputs @ weights
        lowest = float(values[wanted > 0].min())
        if lowest < _POSITIVE or (values[wanted < 0] > _NEGATIVE).any():
            return None
        columns = [self.stream.outputs[name] for name in self.stream.heads[0].values()]
        at = {shape: float(value) / lowest for shape, value in zip(self.owners, values, strict=True)}
        row = Row(dict(zip(columns, (weights / scale / lowest).tolist(), strict=True)))
        return Gate(row, max(at.values()), at)

    def _wanted(self, shape: tuple[int, ...], places: Sequence[tuple[int, ...]], task: int, sides: str) -> int:
        if shape in places:
            return 1
        own = any(owner == task and side in sides for owner, side in self.owners[shape])
        return 0 if own and shape.count(NAME) < 2 else -1

    @cached_property
    def _features(self) -> np.ndarray:
        return np.array([self._read(shape) for shape in self.owners])

    def _read(self, shape: tuple[int, ...]) -> list[float]:
        """What the first head writes at the end of a shape, in the order of its columns."""
        word = self.codes.word
        total = 1 + sum(word[symbol] for symbol in shape)
        found = {"z": 1.0, "q": float(sum(word[symbol] ** 2 for symbol in shape))}
        found |= {f"s_{j}": float(word[symbol]) for j, symbol in enumerate(shape, start=1)}
        found |= {f"count_{symbol}": float(shape.count(symbol)) for symbol in shape}
        return [found.get(name, 0.0) / total for name in self.stream.heads[0].values()]


def _separate(inputs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Minimise ``Σ max(0, 1 - wanted · value)²``, 0 if and only if all that is wanted is met with margin 1."""
    rows, signs = inputs[wanted != 0], wanted[wanted != 0].astype(float)
    share = np.where(signs > 0, 1 / max(1, (signs > 0).sum()), 1 / max(1, (signs < 0).sum()))

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        slack = np.maximum(0, 1 - signs * (rows @ weights))
        return float((share * slack**2).sum()), rows.T @ (-2 * share * slack * signs)

    def stop(weights: np.ndarray) -> None:
        values = rows @ weights
        if (values[signs > 0] >= _POSITIVE).all() and (values[signs < 0] <= _NEGATIVE).all():
            met.append(weights.copy())
            raise StopIteration

    met: list[np.ndarray] = []
    options: Any = {"maxiter": _ROUNDS, "ftol": 0.0, "gtol": 0.0}
    start = np.zeros(inputs.shape[1])
    solved = minimize(loss, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
    return met[-1] if met else np.asarray(solved.x)
