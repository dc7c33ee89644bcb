"""Whether two answers mean the same: exactly for plain numbers and texts, by math-verify for the rest."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from fractions import Fraction
from itertools import product

from routelab.evaluate.extract import NUMBER, canonical, tidy

_LATEX_FRACTION = re.compile(r"^(-?)\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))$")
_MAX_DIGITS = 400
_MAX_SYMBOLIC = 300
# Limits of each step, by the clock: a process that has just started or has to share its CPU gets a second try.
_SECONDS = (5, 30)
_CHILD_SECONDS = 180

logger = logging.getLogger("routelab")


def equivalent(gold: str, answer: str) -> bool:
    """Return whether ``answer`` means the same as ``gold``.

    Equal texts (up to case, spaces and typesetting) and equal rational numbers are equivalent, two different
    terminating numbers are not, and all else is decided by math-verify (sympy) within a time limit; a comparison that
    runs out of time is tried again with a longer one, and if that passes too it counts as different and a warning is
    logged. A percent sign may be a unit or mean hundredths: ``50%`` equals both ``50``
    and ``0.5``. An empty answer equals nothing. Safe in every thread: math-verify's time limit needs the signals of
    the main thread, so elsewhere it runs in a process of its own.
    """
    gold, answer = tidy(gold), tidy(answer)
    if not gold or not answer:
        return False
    if _plain(gold) == _plain(answer):
        return True
    first, second = as_fraction(gold), as_fraction(answer)
    if first is not None and second is not None:
        values = _readings(second, answer.endswith("%"), gold.endswith("%"))
        if any(first == value for value in values):
            return True
        if _terminates(first) and _terminates(second):
            return False
    if max(len(gold), len(answer)) > _MAX_SYMBOLIC or not _mathematical(gold, answer):
        return False
    return symbolically_equal(gold, answer)


def as_fraction(text: str) -> Fraction | None:
    """Return the rational number that ``text`` is, percent signs left aside; None if it is no plain number."""
    latex = _LATEX_FRACTION.match(text.replace(" ", ""))
    if latex:
        sign, above, above_digit, below, below_digit = latex.groups()
        text = f"{sign}{above or above_digit}/{below or below_digit}".replace("--", "")
    match = NUMBER.fullmatch(text)
    if not match:
        return None
    digits = canonical(match).rstrip("%")
    exponent = match["exponent"]
    if len(digits) > _MAX_DIGITS or (exponent and abs(int(exponent[1:])) > _MAX_DIGITS):
        return None
    sign = -1 if digits.startswith("-") else 1
    try:
        return sign * sum((Fraction(part) for part in digits.lstrip("-").split()), Fraction(0))
    except ZeroDivisionError:
        return None


def symbolically_equal(gold: str, answer: str) -> bool:
    """Return math-verify's verdict on two expressions, within a time limit in every thread.

    Without a verdict in time, also at the second try, they count as different and a warning names them.
    """
    on_main = threading.current_thread() is threading.main_thread()
    verdict = _verify(gold, answer) if on_main else _verify_in_child(gold, answer)
    if verdict is None:
        logger.warning("no verdict in time on whether %r equals %r; it counts as different", answer, gold)
    return bool(verdict)


def _verify_in_child(gold: str, answer: str) -> bool | None:
    command = [sys.executable, "-m", "routelab.evaluate.equivalence"]
    pair = json.dumps([gold, answer])
    try:
        child = subprocess.run(command, input=pair, capture_output=True, text=True, timeout=_CHILD_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        return None
    verdict = json.loads(child.stdout)
    return None if verdict is None else bool(verdict)


def _verify(gold: str, answer: str) -> bool | None:
    """Return math-verify's verdict; None if it ran out of time with every limit."""
    for seconds in _SECONDS:
        verdict = _verify_within(seconds, gold, answer)
        if verdict is not None:
            return verdict
    return None


def _verify_within(seconds: int, gold: str, answer: str) -> bool | None:
    """Return math-verify's verdict with ``seconds`` for each step; None if a step that could change it took longer.

    Reading and comparing are asked to raise, as they would otherwise return the same for "no" and "no time".
    """
    from math_verify import parse, verify
    from math_verify.errors import TimeoutException

    try:
        read = [parse(f"${text}$", parsing_timeout=seconds, raise_on_error=True) for text in (gold, answer)]
    except TimeoutException:
        return None
    except Exception:  # whatever the parser trips over is no expression
        return False
    in_time = True
    for first, second in product(*read):
        try:
            if verify(first, second, timeout_seconds=seconds, raise_on_error=True):
                return True
        except TimeoutException:
            in_time = False
        except Exception:  # sympy cannot compare these two; another pair of readings may do
            continue
    return False if in_time else None


def _plain(text: str) -> str:
    text = re.sub(r"[\s*]+", " ", text).strip().casefold()
    return re.sub(r"^\((\w)\)$", r"\1", text)


def _readings(value: Fraction, percent: bool, gold_percent: bool) -> tuple[Fraction, ...]:
    if percent == gold_percent:
        return (value,)
    return (value, value / 100) if percent else (value, value * 100)


def _terminates(value: Fraction) -> bool:
    below = value.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below == 1


def _mathematical(*texts: str) -> bool:
    """Whether each text has something of mathematics: plain words are compared as texts only."""
    return all(re.search(r"[\d\\^_=+*/(){}\[\]]|^\s*[A-Za-z]\s*$", text) for text in texts)


if __name__ == "__main__":
    print(json.dumps(_verify(*json.loads(sys.stdin.read()))))
