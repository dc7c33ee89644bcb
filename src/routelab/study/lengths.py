"""How long two models' answers to the same questions are, by who was right (arXiv 2609.20974, table 4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from routelab.errors import EvaluationError
from routelab.evaluate.comparing import require_one_host
from routelab.evaluate.result_files import Origin, read_origin
from routelab.stored import json_lines

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
_BATCH = 256  # resamples at once
_Array = np.ndarray


@dataclass(frozen=True)
class Answer:
    """The answer to one question: its length, and whether it was right."""

    tokens: int
    characters: int
    correct: bool


class Answers(dict[str, Answer]):
    """The answers of one records file by example and sample, and ``origin``, where they come from."""

    def __init__(self, found: Mapping[str, Answer], origin: Origin) -> None:
        super().__init__(found)
        self.origin = origin


def _mean(values: _Array, counts: _Array) -> _Array:
    return np.asarray(counts @ values / counts.sum(1))


def _quantile(values: _Array, counts: _Array, share: float) -> _Array:
    """The quantile of values that occur ``counts [R, n]`` times, interpolated as numpy does."""
    order = np.argsort(values, kind="stable")
    upto = counts[:, order].cumsum(1)
    place = share * (upto[:, -1] - 1)
    low, high = (values[order][(upto > end[:, None]).argmax(1)] for end in (np.floor(place), np.ceil(place)))
    return np.asarray(low + (place - np.floor(place)) * (high - low))


#: Name → which length it is of, and the statistic of values ``[n]`` that occur ``counts [R, n]`` times: ``[R]``.
STATISTICS: Mapping[str, tuple[str, Callable[[_Array, _Array], _Array]]] = MappingProxyType(
    {
        "mean tokens": ("tokens", _mean),
        "median tokens": ("tokens", partial(_quantile, share=0.5)),
        "P99 tokens": ("tokens", partial(_quantile, share=0.99)),
        "mean characters": ("characters", _mean),
        "median characters": ("characters", partial(_quantile, share=0.5)),
        "P99 characters": ("characters", partial(_quantile, share=0.99)),
        "ramble rate": ("characters", lambda values, counts: _mean(values > RAMBLE, counts)),
    }
)


def read_answers(path: str | Path) -> Answers:
    """Return the answers of a records file, of ``routelab evaluate --out`` or of a run, by example and sample.

    Raises:
        EvaluationError: the file is missing, a line is no record of a generated answer, or one occurs twice; or what
            lies beside it is damaged.
    """
    found: dict[str, Answer] = {}
    try:
        lines = json_lines(Path(path).read_text(encoding="utf-8"))
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
    return Answers(found, read_origin(path))


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
        EvaluationError: no runs, different numbers of them, or runs of other answers; or, as far as it is known where
            answers come from, several hosts, or a pair of other data.
    """
    if len(model) != len(control) or not model:
        raise EvaluationError(
            f"answers pair run by run; got {len(model)} runs of the model, {len(control)} of the control"
        )
    _require_one_origin(model, control)
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


def _require_one_origin(model: Sequence[Mapping[str, Answer]], control: Sequence[Mapping[str, Answer]]) -> None:
    known = [each.origin for each in (*model, *control) if isinstance(each, Answers)]
    for other in known[1:]:
        require_one_host(known[0], other)
    for ours, theirs in zip(model, control, strict=True):
        if isinstance(ours, Answers) and isinstance(theirs, Answers):
            first, second = ours.origin, theirs.origin
            if first.data and second.data and first.data != second.data:
                raise EvaluationError(
                    f"{first.where} has other data than {second.where}: SHA-256 {first.data} and {second.data}"
                )


def _group(pairs: Sequence[tuple[str, Answer, Answer]], level: float, resamples: int, seed: int) -> dict[str, Any]:
    questions = {name: place for place, name in enumerate(dict.fromkeys(_question(pair[0]) for pair in pairs))}
    result: dict[str, Any] = {"n": len(pairs), "questions": len(questions), "statistics": {}}
    if not pairs:
        return result
    of_pair = np.array([questions[_question(pair[0])] for pair in pairs])
    once = np.ones((1, len(pairs)), dtype=np.int64)
    for name, (unit, statistic) in STATISTICS.items():
        columns = [np.array([getattr(pair[side], unit) for pair in pairs], dtype=np.float64) for side in (1, 2)]
        before, after = (float(statistic(column, once)[0]) for column in columns)
        changes: list[float] = []
        for counts in _draws(of_pair, len(questions), resamples, seed):
            old, new = (statistic(column, counts) for column in columns)
            changes += (new[old > 0] / old[old > 0] - 1).tolist()
        known = bool(changes) and before > 0
        low, high = np.quantile(changes, [(1 - level) / 2, (1 + level) / 2]).tolist() if known else (None, None)
        change = after / before - 1 if before else None
        result["statistics"][name] = {"control": before, "model": after, "change": change, "low": low, "high": high}
    return result


def _draws(of_pair: _Array, questions: int, resamples: int, seed: int) -> Iterator[_Array]:
    """Yield how often each pair occurs in some resamples of the questions, ``[R, pairs]``; nothing for one question."""
    if questions < 2:
        return
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _BATCH):
        size = min(_BATCH, resamples - start)
        yield rng.multinomial(questions, np.full(questions, 1 / questions), size=size)[:, of_pair]


def _question(name: str) -> str:
    return name.rpartition("/")[0]
