"""Arithmetic word problems: a chain of steps on one quantity, told in varied words, with its worked solution."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from routelab.data.mini_world.names import OBJECTS, PEOPLE
from routelab.errors import DataError

# kind of step -> the operator of its equation. "more", "fewer" and "times" hand the question to a new person, whose
# amount is given relative to the last one; "total" adds the last two people's amounts and can only end a problem.
OPERATORS = {"gain": "+", "lose": "-", "more": "+", "fewer": "-", "times": "*", "share": "/", "total": "T"}
HANDOVERS = ("more", "fewer", "times")
FACTORS = (2, 3, 4, 5)

OPENINGS = (
    "{p} has {n} {o}.",
    "{p} starts with {n} {o}.",
    "At first {p} has {n} {o}.",
    "There are {n} {o} in a bag that {p} owns.",
    "{p} owns {n} {o}.",
)
WORDINGS = {
    "gain": (
        "{p} finds {n} more {o}.",
        "{p} buys {n} more {o}.",
        "Then {p} gets {n} {o} from {x}.",
        "{x} gives {p} {n} {o}.",
        "After that {p} collects another {n} {o}.",
    ),
    "lose": (
        "{p} gives {n} {o} to {x}.",
        "{p} loses {n} {o}.",
        "Then {p} sells {n} {o}.",
        "{x} takes {n} of the {o} that {p} has.",
        "After that {p} throws away {n} {o}.",
    ),
    "more": (
        "{q} has {n} more {o} than {p}.",
        "Compared with {p}, {q} has {n} more {o}.",
        "{q} owns {n} {o} more than {p} does.",
    ),
    "fewer": (
        "{q} has {n} fewer {o} than {p}.",
        "Compared with {p}, {q} has {n} fewer {o}.",
        "{q} owns {n} {o} fewer than {p} does.",
    ),
    "times": (
        "{q} has {n} times as many {o} as {p}.",
        "{q} owns {n} times the number of {o} that {p} has.",
        "For each of the {o} of {p}, {q} has {n} {o}.",
    ),
    "share": (
        "{p} shares the {o} equally among {n} boxes and keeps one box.",
        "{p} puts the {o} into {n} equal piles and keeps only one pile.",
        "{p} divides the {o} into {n} equal parts and gives away all parts but one.",
    ),
}
QUESTIONS = (
    "How many {o} does {p} have now?",
    "How many {o} does {p} have in the end?",
    "What is the number of {o} that {p} has at the end?",
)
TOTALS = (
    "How many {o} do {q} and {p} have together?",
    "How many {o} do {q} and {p} have in total?",
)
DISTRACTORS = ("{x} has {n} {o}.", "{x} also looks at {n} {o}.", "There are {n} {o} on a table.")


@dataclass(frozen=True)
class Problem:
    """The content of a word problem, without its words: a start value and steps ``(kind, operand)``."""

    start: int
    steps: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        """Canonical form, e.g. ``"12+7*3T"``: equal for problems that differ in wording only."""
        return str(self.start) + "".join(f"{OPERATORS[k]}{n or ''}" for k, n in self.steps)

    def equations(self) -> list[tuple[int, str, int, int]]:
        """One ``(left, operator, right, result)`` per step; ``total`` becomes the addition that it stands for."""
        held, previous = self.start, 0
        lines = []
        for kind, operand in self.steps:
            left, right = held, operand
            if kind == "total":
                left, right = previous, held
            elif kind in HANDOVERS:
                previous = held
            symbol = "+" if kind == "total" else OPERATORS[kind]
            held = apply(left, symbol, right)
            lines.append((left, symbol, right, held))
        return lines

    @property
    def result(self) -> int:
        return self.equations()[-1][3] if self.steps else self.start


def apply(left: int, symbol: str, right: int) -> int:
    """``left symbol right`` on integers; a division that leaves a remainder raises :class:`DataError`."""
    if symbol == "/":
        if right == 0 or left % right:
            raise DataError(f"{left} / {right} is not a whole number")
        return left // right
    return {"+": left + right, "-": left - right, "*": left * right}[symbol]


def draw_problem(rng: random.Random, steps: int, limit: int) -> Problem:
    """Draw a problem of ``steps`` steps in which every number lies in ``2 … limit``."""
    start = rng.randint(2, max(2, limit * 2 // 3))
    chosen: list[tuple[str, int]] = []
    value, previous = start, 0
    for index in range(steps):
        kind, operand = rng.choice(list(_possible(rng, value, previous, limit, index == steps - 1)))
        chosen.append((kind, operand))
        if kind == "total":
            break
        if kind in HANDOVERS:
            previous = value
        value = apply(value, OPERATORS[kind], operand)
    return Problem(start, tuple(chosen))


def _possible(rng: random.Random, value: int, previous: int, limit: int, last: bool) -> Iterator[tuple[str, int]]:
    """The steps that keep every number in range, each kind with one operand drawn for it."""
    if value + 2 <= limit:
        yield "gain", rng.randint(2, limit - value)
        yield "more", rng.randint(2, limit - value)
    if value >= 4:
        yield "lose", rng.randint(2, value - 2)
        yield "fewer", rng.randint(2, value - 2)
    factors = [k for k in FACTORS if value * k <= limit]
    if factors:
        yield "times", rng.choice(factors)
    divisors = [k for k in FACTORS if value % k == 0 and value // k >= 2]
    if divisors:
        yield "share", rng.choice(divisors)
    if last and previous and previous + value <= limit:
        yield "total", 0


def tell(problem: Problem, rng: random.Random, distractors: int = 0) -> str:
    """Put ``problem`` into words, with ``distractors`` sentences about things that nobody asks for."""
    people = iter(rng.sample(PEOPLE, 2 * len(problem.steps) + distractors + 1))
    things = rng.sample(OBJECTS, 2)
    holder, previous = next(people), ""
    names = {"o": things[0]}
    sentences = [rng.choice(OPENINGS).format(p=holder, n=problem.start, **names)]
    for kind, operand in problem.steps:
        if kind == "total":
            break
        fresh = next(people)
        text = rng.choice(WORDINGS[kind])
        sentences.append(text.format(p=holder, q=fresh, x=fresh, n=operand, **names))
        if kind in HANDOVERS:
            holder, previous = fresh, holder
    for _ in range(distractors):
        aside = rng.choice(DISTRACTORS).format(x=next(people), n=rng.randint(2, 99), o=things[1])
        sentences.insert(rng.randint(1, len(sentences)), aside)
    asked = TOTALS if problem.steps[-1][0] == "total" else QUESTIONS
    sentences.append(rng.choice(asked).format(p=holder, q=previous, **names))
    return " ".join(sentences)


def work(problem: Problem) -> str:
    """The worked solution: one equation a line, then ``#### N``."""
    lines = [f"{left} {symbol} {right} = {result}" for left, symbol, right, result in problem.equations()]
    return "\n".join([*lines, f"#### {problem.result}"])
