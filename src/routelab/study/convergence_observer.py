"""Measure how far attention, its output and the state move from step to step, without ever holding an attention matrix.

Of the step before, queries, keys and output are kept, ``O(n d)`` a core block; the attention rows of both steps are
computed again from them, some queries at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.hosts.recurrent.core import CoreAttention, CoreCall
from routelab.study.convergence import TOP_KEYS, Distances
from routelab.study.full_run import Observer, run_full

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Attention weights held at once, of either step.
_TILE = 2**19


class ConvergenceObserver(Observer):
    """Compares every step of every core block with the one before.

    Args:
        inner: what attends; full attention by default.
        every: take every so many-th query of a row, counted back from its last, for supports and attention rows, whose
            cost is ``O(n² d)``. State and output always count every token.
    """

    def __init__(self, inner: CoreAttention | None = None, *, every: int = 1) -> None:
        super().__init__(inner)
        if every < 1:
            raise EvaluationError(f"every={every}: take every query (1), or every so many-th")
        self.every = every

    def open(self, call: CoreCall) -> None:
        self._mask = call.key_mask
        self._before: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        # Per row and core block, the values of its transitions: Jaccard, divergence, relative change of the output.
        self._found: dict[tuple[int, int], list[tuple[float, float, float]]] = {}

    @torch.no_grad()
    def note(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
        now = query, key, output
        before = self._before.get(block)
        self._before[block] = now
        if before is None:
            return
        for row in range(len(query)):
            old, new = ([self._real(x, row) for x in tensors] for tensors in (before, now))
            similarity, divergence = compare_rows(old[:2], new[:2], every=self.every)
            change = relative_change(old[2], new[2])
            self._found.setdefault((row, block), []).append((similarity, divergence, change))

    def distances(self, states: Tensor) -> list[Distances]:
        """Return the distances of each row, given its ``states [T, B, S, d]``."""
        blocks = range(len(self._before))
        results = []
        for row in range(states.shape[1]):
            kept = slice(None) if self._mask is None else self._mask[row]
            found = [list(zip(*step, strict=True)) for step in zip(*(self._found[row, b] for b in blocks), strict=True)]
            results.append(
                Distances(
                    support=[list(step[0]) for step in found],
                    attention=[list(step[1]) for step in found],
                    output=[list(step[2]) for step in found],
                    state=[
                        relative_change(states[t - 1, row, kept], states[t, row, kept]) for t in range(1, len(states))
                    ],
                )
            )
        return results

    def _real(self, x: Tensor, row: int) -> Tensor:
        """The real slots of one row, ``[H, n, d]``."""
        return x[row] if self._mask is None else x[row][:, self._mask[row]]


def measure_convergence(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    num_steps: int = 32,
    seed: int = 0,
    initial_state: Tensor | None = None,
    every: int = 1,
) -> list[Distances]:
    """Run prompts ``[B, S]`` under full attention; return the distances of each, for ``convergence_times``.

    The states of the batch are held, ``[T, B, S, d]``; give long prompts one at a time. ``every`` as in
    :class:`ConvergenceObserver`.
    """
    observer = ConvergenceObserver(every=every)
    states = run_full(
        model,
        observer,
        input_ids,
        attention_mask,
        num_steps=num_steps,
        seed=seed,
        initial_state=initial_state,
        output_states=True,
    )
    assert states is not None
    return observer.distances(states)


def compare_rows(old: list[Tensor], new: list[Tensor], *, every: int = 1) -> tuple[float, float]:
    """Return the mean Jaccard of top keys and the mean Jensen-Shannon divergence between two causal attentions.

    Args:
        old, new: query ``[H, n, d]`` and key ``[G, n, d]`` of either step, G a divisor of H.
        every: queries taken, see :class:`ConvergenceObserver`.
    """
    length, heads = old[0].shape[1], old[0].shape[0]
    positions = torch.arange(length - 1, -1, -every, device=old[0].device).flip(0)
    similarity = divergence = torch.zeros((), dtype=torch.float64)
    for tile in positions.split(max(1, _TILE // (heads * length))):
        scores = [_scores(query, key, tile) for query, key in (old, new)]
        sizes = (tile + 1).clamp_max(TOP_KEYS)
        similarity = similarity + _jaccard(scores[0], scores[1], sizes).double().sum().cpu()
        divergence = divergence + jensen_shannon(scores[0].softmax(-1), scores[1].softmax(-1)).double().sum().cpu()
    count = heads * len(positions)
    return float(similarity) / count, float(divergence) / count


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """Return ``½ KL(p ‖ m) + ½ KL(q ‖ m)``, ``m = (p + q)/2``, over the last dimension, in nats.

    As ``½ Σ m (2x artanh x + log(1 - x²))`` with ``x = (p - q)/(p + q)``, whose terms are all of the order of ``x²``:
    the divergence of nearly equal rows is not lost in rounding.
    """
    mean = (p + q) / 2
    finfo = torch.finfo(mean.dtype)
    x = ((p - q) / (2 * mean.clamp_min(finfo.tiny))).clamp(finfo.eps - 1, 1 - finfo.eps)
    return (mean * (2 * x * x.atanh() + torch.log1p(-x * x))).sum(-1) / 2


def relative_change(old: Tensor, new: Tensor) -> float:
    """Return ``‖new - old‖ / ‖old‖`` over all entries, in float64."""
    old = old.double()
    return float((new.double() - old).norm() / old.norm())


def _scores(query: Tensor, key: Tensor, positions: Tensor) -> Tensor:
    """Return causal scores ``[H, m, n]`` of the queries at ``positions [m]``, float32 or wider."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    grouped = query[:, positions].to(dtype).unflatten(0, (len(key), -1)).flatten(1, 2)
    scores = (grouped * query.shape[-1] ** -0.5) @ key.to(dtype).transpose(1, 2)
    later = torch.arange(key.shape[1], device=key.device) > positions[:, None]
    return scores.view(len(query), len(positions), -1).masked_fill_(later, -torch.inf)


def _jaccard(old: Tensor, new: Tensor, sizes: Tensor) -> Tensor:
    """Return ``|A ∩ B| / |A ∪ B|`` of the ``sizes [m]`` highest scores of either row, ``[H, m]``."""
    most = min(TOP_KEYS, old.shape[-1])
    first, second = (scores.topk(most).indices for scores in (old, new))
    counts = torch.arange(most, device=old.device) < sizes[:, None]
    same = (first[..., :, None] == second[..., None, :]) & counts[..., :, None] & counts[..., None, :]
    common = same.sum((-2, -1))
    return common / (2 * sizes - common)
