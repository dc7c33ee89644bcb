"""The linear router: the paper's, which reads the template head alone, and the one that also reads the names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from routelab.errors import ConfigError
from routelab.theory.codes import Codes
from routelab.theory.stream import Stream

ROUNDS = 1000
MARGIN = 1e-4
_SHOWN = 6


def refuse_shared_prefixes(codes: Codes) -> None:
    """Check the hypothesis of the paper's router: no two tasks have templates that begin alike.

    The empty prefix is of every task and is not meant. Names look alike to the template head, so ``⋆1`` and ``⋆2`` do.

    Raises:
        ConfigError: naming the prefixes and their tasks.
    """
    knowledge = codes.knowledge
    tasks: dict[tuple[int, ...], dict[str, str]] = defaultdict(dict)
    for task in knowledge.tasks:
        for template in task.templates:
            shape = codes.shape(template)
            for length in range(1, len(shape) + 1):
                tasks[shape[:length]].setdefault(task.name, " ".join(template.words[:length]))
    shared = {shape: found for shape, found in tasks.items() if len(found) > 1}
    if not shared:
        return
    ends = [shape for shape in shared if not any(other[: len(shape)] == shape for other in shared if other != shape)]
    lines = [
        f"{next(iter(shared[shape].values()))!r} ({', '.join(sorted(shared[shape])[:_SHOWN])})"
        for shape in ends[:_SHOWN]
    ]
    more = f" and {len(ends) - _SHOWN} more" if len(ends) > _SHOWN else ""
    raise ConfigError(
        f"router='template' tells tasks apart by their template prefixes, but tasks share {'; '.join(lines)}{more}; "
        "router='auto' also reads the names"
    )


def template_router(codes: Codes, stream: Stream) -> np.ndarray:
    """Return ``[E, d]``: the first word decides, ``score_k = (k s_1 - β_k z)``, piecewise in its number F(w_1) = s_1/z.

    First words are numbered task by task, so those of task *k* lie between two half-integers, the crossings of the
    lines; the slopes rise with *k*, so its line is the highest there. The empty prefix goes to the first task.
    """
    tasks = codes.knowledge.tasks
    weights = np.zeros((len(tasks), stream.width))
    offset = 0.0
    for number, task in enumerate(tasks):
        firsts = [codes.word[codes.shape(template)[0]] for template in task.templates]
        if number:
            offset += min(firsts) - 0.5
        weights[number, stream.outputs["s_1"]] = number
        weights[number, stream.outputs["z"]] = -offset
    return weights


def name_router(codes: Codes, stream: Stream, wanted: Sequence[int], states: np.ndarray) -> np.ndarray:
    """Return ``[E, d]`` by which states go to the wanted tasks, where a linear router can tell them apart.

    The start is explicit: a task loses by words that none of its templates has and by names that have no part in it,
    and among equals the first task wins. Where that sends a prefix elsewhere, a convex loss that is zero for every
    separating router is minimised, for at most :data:`ROUNDS` steps.

    Args:
        states: ``[P, d]``, one of every kind of prefix.
    """
    hidden = {f"{head}{power}" for head in ("key", "last") for power in ("", "^2")}
    read = [at for name, at in stream.outputs.items() if name not in hidden]
    inputs = states[:, read]
    scale = np.maximum(np.abs(inputs).max(0), 1e-12)
    full = np.zeros((len(codes.knowledge.tasks), stream.width))
    full[:, read] = _separate(_first_guess(codes, stream)[:, read] * scale, inputs / scale, np.array(wanted)) / scale
    return full


def _separate(weights: np.ndarray, inputs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Minimise ``Σ_n Σ_e max(0, 1 - (score of wanted - score of e))²``, convex, 0 if and only if all margins are 1."""
    rows = np.arange(len(wanted))
    fewest, best = [len(wanted) + 1], [weights]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        scores = inputs @ flat.reshape(weights.shape).T
        slack = np.maximum(0, 1 - scores[rows, wanted][:, None] + scores)
        slack[rows, wanted] = 0
        pull = 2 * slack
        pull[rows, wanted] = -pull.sum(1)
        return float((slack**2).sum()), (pull.T @ inputs).ravel()

    def stop(flat: np.ndarray) -> None:
        scores = inputs @ flat.reshape(weights.shape).T
        own = scores[rows, wanted].copy()
        scores[rows, wanted] = -np.inf
        wrong = int((scores.max(1) > own - MARGIN).sum())
        if wrong < fewest[0]:
            fewest[0], best[0] = wrong, flat.reshape(weights.shape).copy()
        if not wrong:
            raise StopIteration

    try:
        stop(weights.ravel())
    except StopIteration:
        return weights
    options: Any = {"maxiter": ROUNDS, "ftol": 0.0, "gtol": 0.0}
    minimize(loss, weights.ravel(), jac=True, method="L-BFGS-B", callback=stop, options=options)
    return best[0]


def _first_guess(codes: Codes, stream: Stream) -> np.ndarray:
    knowledge, scale = codes.knowledge, float(codes.largest_sum)
    weights = np.zeros((len(knowledge.tasks), stream.width))
    for number, task in enumerate(knowledge.tasks):
        if not codes.by_length:
            weights[number, stream.outputs["z"]] = -0.1 * number / len(knowledge.tasks)
        if stream.reads_words:
            own = {symbol for template in task.templates for symbol in codes.shape(template)}
            for word in codes.word:
                if word not in own:
                    weights[number, stream.outputs[f"count_{word}"]] = -4 * scale
        if stream.reads_features:
            for f, feature in enumerate(codes.features):
                if feature.task == number and feature.role == "key":
                    weights[number, stream.outputs[f"key_bit_{f}"]] = 1.0
                elif feature.task == number and feature.role == "value" and stream.sees_value:
                    weights[number, stream.outputs[f"last_bit_{f}"]] = 0.5
    return weights
