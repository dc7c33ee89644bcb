"""How long two models' answers to the same questions are, by who was right (arXiv 2609.20974, table 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from routelab.errors import EvaluationError

#: Characters beyond which an answer rambles (table 4).
RAMBLE = 1000
#: (control right, model right) by name, in the order of the table.
OUTCOMES = MappingProxyType(
    {
        "both correct": (True, True),
        "both wrong": (False, False),
        "wrong to correct": (False, True),
        "correct to wrong": (True, False),
    }
)
ALL = "all"

_SHOWN = 3
_Array = np.ndarray


@dataclass(frozen=True)
class Answer:
    """The answer to one question: its length, and whether it was right."""

    tokens: int
    characters: int
    correct: bool


#: Name → what is measured of the answers of a group: which length, and the statistic of it.
STATISTICS: Mapping[str, tuple[str, Callable[[_Array], float]]] = MappingProxyType(
    {
        "mean tokens": ("tokens", lambda x: float(x.mean())),
        "median tokens": ("tokens", lambda x: float(np.median(x))),
        "P99 tokens": ("tokens", lambda x: float(np.percentile(x, 99))),
        "mean characters": ("characters", lambda x: float(x.mean())),
        "median characters": ("characters", lambda x: float(np.median(x))),
        "P99 characters": ("characters", lambda x: float(np.percentile(x, 99))),
        "ramble rate": ("characters", lambda x: float((x > RAMBLE).mean())),
    }
)


def read_answers(path: str | Path) -> dict[str, Answer]:
    """Return the answers of a records file (``routelab evaluate --out``) by example and sample.

    Raises:
        EvaluationError: the file is missing, a line is no record of a generated answer, or one occurs twice.
    """
    found: dict[str, Answer] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EvaluationError(f"cannot read the records {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            name = f"{record['id']}/{record['sample']}"
            answer = Answer(int(record["tokens"]), int(record["characters"]), bool(record["correct"]))
        except (ValueError, KeyError, TypeError) as error:
            raise EvaluationError(f"{path}, line {number}: no record of a generated answer ({error!r})") from error
        if name in found:
            raise EvaluationError(f"{path}, line {number}: the answer {name} occurs twice")
        found[name] = answer
    return found


def compare_lengths(
    model: Sequence[Mapping[str, Answer]],
    control: Sequence[Mapping[str, Answer]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare the lengths of paired answers within every outcome, as plain data.

    Args:
        model, control: answers by example and sample; several runs, such as seeds, pair in order.

    Returns:
        ``groups``: per outcome ``{"n", "questions", "statistics"}``, a statistic being ``{"control", "model", "change",
        "low", "high"}``: both values and the change relative to the control, with its interval. It is the percentile
        interval of a bootstrap over questions, so that the runs of one question stay together; None where the
        group has fewer than two of them, and ``change`` is None where the control's value is 0.

    Raises:
        EvaluationError: no runs, different numbers of them, or runs of other answers.
    """
    if len(model) != len(control) or not model:
        raise EvaluationError(f"answers pair run by run; got {len(model)} runs of the model, {len(control)} of the control")
    pairs: list[tuple[str, Answer, Answer]] = []
    for number, (ours, theirs) in enumerate(zip(model, control, strict=True), start=1):
        odd = sorted(ours.keys() ^ theirs.keys())
        if odd:
            raise EvaluationError(f"run {number}: only one of the two has the answers {', '.join(odd[:_SHOWN])}")
        pairs += [(name, theirs[name], ours[name]) for name in ours]
    if not pairs:
        raise EvaluationError("there are no answers to compare")
    groups = {ALL: _group(pairs, level, resamples, seed)}
    for outcome, (before, after) in OUTCOMES.items():
        own = [pair for pair in pairs if (pair[1].correct, pair[2].correct) == (before, after)]
        groups[outcome] = _group(own, level, resamples, seed)
    return {"runs": len(model), "answers": len(pairs), "level": level, "ramble": RAMBLE, "groups": groups}


def _group(pairs: Sequence[tuple[str, Answer, Answer]], level: float, resamples: int, seed: int) -> dict[str, Any]:
    members: dict[str, list[int]] = {}
    for place, (name, _, _) in enumerate(pairs):
        members.setdefault(name.rpartition("/")[0], []).append(place)
    lengths = {
        unit: np.array([[getattr(answer, unit) for answer in pair[1:]] for pair in pairs]).reshape(-1, 2)
        for unit in ("tokens", "characters")
    }
    draws = _draws([np.array(places) for places in members.values()], resamples if len(members) > 1 else 0, seed)
    statistics = {}
    if pairs:
        changes = _resampled(lengths, draws)
        for name, (unit, statistic) in STATISTICS.items():
            before, after = (statistic(column) for column in lengths[unit].T)
            statistics[name] = {"control": before, "model": after, "change": _change(before, after)}
            statistics[name] |= _interval(changes[name], level)
    return {"n": len(pairs), "questions": len(members), "statistics": statistics}


def _draws(members: Sequence[_Array], resamples: int, seed: int) -> Iterable[_Array]:
    """Yield the pairs of questions that were drawn with replacement."""
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.concatenate([members[place] for place in rng.integers(len(members), size=len(members))])


def _resampled(lengths: Mapping[str, _Array], draws: Iterable[_Array]) -> dict[str, list[float]]:
    changes: dict[str, list[float]] = {name: [] for name in STATISTICS}
    for drawn in draws:
        for name, (unit, statistic) in STATISTICS.items():
            change = _change(*(statistic(column) for column in lengths[unit][drawn].T))
            if change is not None:
                changes[name].append(change)
    return changes


def _change(before: float, after: float) -> float | None:
    return after / before - 1 if before else None


def _interval(changes: Sequence[float], level: float) -> dict[str, float | None]:
    if not changes:
        return {"low": None, "high": None}
    low, high = np.quantile(changes, [(1 - level) / 2, (1 + level) / 2])
    return {"low": float(low), "high": float(high)}
