"""Two ways to answer an arithmetic word problem: thinking aloud, and at once."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from routelab.data.mini_world.arithmetic import apply
from routelab.data.mini_world.splits import seeded
from routelab.errors import DataError

OPENINGS = (
    "Okay, one step at a time.",
    "Okay, I start with the first number.",
    "Let me think. I go through it in order.",
    "Hmm, I work it out step by step.",
)
CHECKS = (
    "Wait, let me check: {check}. Right.",
    "Wait, is that so? {check}. Yes.",
    "Hmm, {check}. That fits.",
    "Let me think again: {check}. Good.",
)
OTHER_WAYS = ("Alternatively, {swapped}. The same.", "Alternatively I can say {swapped}.")
ENDINGS = ("So it is {gold}.", "That makes {gold}.", "Okay, so {gold}.")

INVERSE = {"+": "-", "-": "+", "*": "/", "/": "*"}
_EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def think_aloud(row: Mapping[str, Any]) -> str:
    """Return a thought about an arithmetic ``row``: its equations, each perhaps checked, in reflective words.

    A check is the inverse operation, another way is the same operation in the other order; all of them are true. The
    last step is always checked. The same row gives the same thought.

    Raises:
        DataError: the row's answer is not a worked solution.
    """
    rng = seeded("think aloud", row["id"])
    *worked, _ = str(row["answer"]).splitlines()
    lines = [rng.choice(OPENINGS)]
    for number, line in enumerate(worked, start=1):
        lines.append(line)
        if number == len(worked) or rng.random() < 0.5:
            lines.append(_remark(line, rng))
    return "\n".join([*lines, rng.choice(ENDINGS).format(gold=row["gold"])])


def answer_at_once(row: Mapping[str, Any]) -> str:
    """Return the direct answer to an arithmetic ``row``: ``#### N``."""
    return f"#### {row['gold']}"


def _remark(line: str, rng: random.Random) -> str:
    match = _EQUATION.fullmatch(line)
    if not match:
        raise DataError(f"{line!r} is not a line of a worked solution, such as '12 + 7 = 19'")
    left, right, result = int(match[1]), int(match[3]), int(match[4])
    symbol = match[2]
    if symbol in "+*" and rng.random() < 0.3:
        return rng.choice(OTHER_WAYS).format(swapped=f"{right} {symbol} {left} = {result}")
    undo = INVERSE[symbol]
    return rng.choice(CHECKS).format(check=f"{result} {undo} {right} = {apply(result, undo, right)}")
