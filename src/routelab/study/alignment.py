"""How far experts and tasks belong together: which experts each task's tokens visit, and what that says.

Everything is counted from choices alone, so the measures are the same for every router. Tasks weigh the same, however
many tokens they have: ``P(t, e) = share[t, e] / K``, where ``share[t]`` is the distribution of task *t*'s choices over
the E experts and K is the number of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from routelab.errors import EvaluationError

#: An expert counts as active for a task where it is among the fewest that take this share of the task's choices.
COVERAGE = 0.95


def count_choices(experts: np.ndarray, tasks: np.ndarray, *, num_tasks: int, num_experts: int) -> np.ndarray:
    """Return how often each task's tokens chose each expert.

    Args:
        experts: ``[T, k]``, or ``[L, T, k]`` for L layers.
        tasks: ``[T]``, the task of each token.

    Returns:
        int64 ``[K, E]``, or ``[L, K, E]``.

    Raises:
        EvaluationError: lengths differ, or a task or an expert is out of range.
    """
    if experts.shape[-2] != len(tasks):
        raise EvaluationError(f"{experts.shape[-2]} tokens chose experts and {len(tasks)} tokens have a task")
    if tasks.size and not 0 <= int(tasks.min()) <= int(tasks.max()) < num_tasks:
        raise EvaluationError(f"tasks are numbered 0 to {num_tasks - 1}, got {int(tasks.min())} to {int(tasks.max())}")
    if experts.size and not 0 <= int(experts.min()) <= int(experts.max()) < num_experts:
        raise EvaluationError(f"experts are numbered 0 to {num_experts - 1}, got one of {int(experts.max())}")
    layers = experts.reshape(-1, *experts.shape[-2:]).astype(np.int64)
    pairs = tasks.astype(np.int64)[None, :, None] * num_experts + layers
    size = num_tasks * num_experts
    counts = np.stack([np.bincount(layer.ravel(), minlength=size) for layer in pairs])
    return counts.reshape(*experts.shape[:-2], num_tasks, num_experts)


def alignment(counts: np.ndarray) -> dict[str, Any]:
    """Return the alignment measures of one router as plain data.

    - ``share`` ``[K][E]``: of each task's choices, how many went to each expert; the task × expert heat map.
    - ``nmi``: ``I(T; E) / min(H(T), H(E))``, the mutual information of task and expert over its largest possible value:
      0 where all tasks use the experts alike, 1 where the expert tells the task (or, with fewer experts than tasks, the
      task tells the expert). 0 where either entropy is 0.
    - ``purity``: ``Σ_e max_t P(t, e)``, the share of choices made by the task that uses the expert most; at least 1/K.
    - ``entropy`` ``[K]``: of each task's choices over experts, divided by ``ln E``: 0 is one expert, 1 all alike.
    - ``load`` ``[E]``: ``P(e)``; ``dead``: how many experts no task chose.

    Args:
        counts: ``[K, E]``.

    Raises:
        EvaluationError: a task made no choice.
    """
    tasks, experts = counts.shape
    totals = counts.sum(-1, keepdims=True)
    if not totals.all():
        raise EvaluationError(f"no token of task {int(np.argmin(totals))} chose an expert")
    share = counts / totals
    joint = share / tasks
    load = joint.sum(0)
    task_entropy, expert_entropy = np.log(tasks), _entropy(load)
    information = task_entropy + expert_entropy - _entropy(joint)
    bound = min(task_entropy, expert_entropy)
    return {
        "share": share.tolist(),
        "nmi": float(np.clip(information / bound, 0, 1)) if bound > 1e-12 else 0.0,
        "purity": float(joint.max(0).sum()),
        "entropy": [float(_entropy(row) / np.log(experts)) if experts > 1 else 0.0 for row in share],
        "load": load.tolist(),
        "dead": int((counts.sum(0) == 0).sum()),
    }


def active_experts(counts: np.ndarray, coverage: float = COVERAGE) -> np.ndarray:
    """Return for every task the fewest experts that take ``coverage`` of its choices: ``[..., K]``."""
    ordered = -np.sort(-counts, axis=-1)
    reached = ordered.cumsum(-1) >= coverage * counts.sum(-1, keepdims=True) - 1e-9
    return np.asarray(reached.argmax(-1) + 1)


def measures(counts: np.ndarray, layers: Sequence[int], tasks: Sequence[str]) -> dict[str, Any]:
    """Return :func:`alignment` of every layer, and the means over layers of its numbers.

    Args:
        counts: ``[L, K, E]``, a layer's counts in the order of ``layers``, a task's in the order of ``tasks``.
    """
    found = [{"layer": layer, **alignment(each)} for layer, each in zip(layers, counts, strict=True)]
    return {
        "tasks": list(tasks),
        "layers": found,
        "nmi": float(np.mean([each["nmi"] for each in found])),
        "purity": float(np.mean([each["purity"] for each in found])),
        "entropy": np.mean([each["entropy"] for each in found], axis=0).tolist(),
        "dead": sum(each["dead"] for each in found),
        "active_experts": active_experts(counts).mean(0).tolist(),
    }


def _entropy(p: np.ndarray) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())
