"""What a one-layer model does on prefixes: expert, neurons that fire, output, probability of a set of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from routelab.hosts.one_layer import OneLayerForCausalLM
from routelab.theory.prefixes import Prefix

#: Tokens on each side of an output's direction whose probabilities are added up one by one.
_NEAR = 16
_NEGLIGIBLE = 1e-18
_CHUNK = 4096
#: A neuron whose upper bound is below this is not evaluated; rounding is smaller by orders of magnitude.
_SURELY_OFF = -0.25
#: Beyond the two output coordinates, less than this is what an input leaves beside the output of a head.
_RESIDUE = 1e-30


@dataclass(frozen=True)
class Firing:
    """The neurons that fire on P prefixes, as F triples: ``prefix``, ``neuron`` (of its expert) and ``value``, each
    ``[F]``; and over all neurons that were evaluated, the lowest value of one that fires and the highest of one that
    does not."""

    prefix: np.ndarray
    neuron: np.ndarray
    value: np.ndarray
    lowest_on: float
    highest_off: float


@dataclass(frozen=True)
class Reader:
    """The weights of a model as float64 arrays."""

    model: OneLayerForCausalLM

    def experts(self, states: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the expert of every state ``[P]``, and by how much the narrowest choice was won."""
        if self.model.model.router is None or not len(states):
            return np.zeros(len(states), dtype=np.int64), float("inf")
        scores = states @ self.model.model.router.weight.numpy().T
        two = np.partition(scores, -2, axis=1)[:, -2:]
        return scores.argmax(1), float((two[:, 1] - two[:, 0]).min())

    def firing(self, states: np.ndarray, experts: np.ndarray, prefixes: Sequence[Prefix]) -> Firing:
        """Evaluate the chosen expert of every prefix, ``states [P, d]``.

        Prefixes are taken key by key. A neuron is left out for a key only if an upper bound over all states, computed
        from the weights, says that it cannot fire there.
        """
        parts = [
            part
            for expert in np.unique(experts)
            for part in self._expert_firing(int(expert), np.flatnonzero(experts == expert), states, prefixes)
        ]
        columns = [np.concatenate([part[i] for part in parts]) for i in range(3)]
        return Firing(
            columns[0],
            columns[1],
            columns[2],
            min(part[3] for part in parts),
            max(part[4] for part in parts),
        )

    def _expert_firing(
        self, expert: int, where: np.ndarray, states: np.ndarray, prefixes: Sequence[Prefix]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, float, float]]:
        up = self.model.model.expert(expert).up
        weight, bias = up.weight.numpy(), up.bias.numpy()
        keys = np.array([prefixes[at].key for at in where])
        order = np.argsort(keys, kind="stable")
        starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
        groups = np.split(where[order], starts[1:])
        by_key = self._columns_of_head(1)
        others = np.setdiff1d(np.arange(weight.shape[1]), by_key)
        elsewhere = _highest(states[where][:, others], weight[:, others]) + bias
        for start in range(0, len(groups), _CHUNK):
            part = groups[start : start + _CHUNK]
            spread = np.array([np.abs(states[group][:, by_key] - states[group[0], by_key]).max() for group in part])
            own = states[np.ix_([group[0] for group in part], by_key)] @ weight[:, by_key].T + elsewhere
            for group, bound, uneven in zip(part, own, spread, strict=True):
                kept = np.arange(len(bias)) if uneven > _NEGLIGIBLE else np.flatnonzero(bound > _SURELY_OFF)
                before = states[group] @ weight[kept].T + bias[kept]
                row, column = np.nonzero(before > 0)
                on, off = before[row, column], before[before <= 0]
                yield (
                    group[row],
                    kept[column],
                    on,
                    float(on.min(initial=np.inf)),
                    float(off.max(initial=-np.inf)),
                )

    def _columns_of_head(self, head: int) -> np.ndarray:
        size = self.model.config.head_size
        written = self.model.model.attention.o_proj.weight.numpy()[:, head * size : (head + 1) * size]
        return np.flatnonzero(np.abs(written).any(1))

    def outputs(self, states: np.ndarray, experts: np.ndarray, firing: Firing) -> np.ndarray:
        """Return ``A''`` on the two output coordinates, ``[P, 2]``."""
        found = states[:, :2].copy()
        for expert in np.unique(experts):
            down = self.model.model.expert(int(expert)).down
            here = experts[firing.prefix] == expert
            for coordinate, weights in enumerate(down.weight.numpy()[:2]):
                update = firing.value[here] * weights[firing.neuron[here]]
                found[:, coordinate] += np.bincount(firing.prefix[here], update, minlength=len(found))
            found[experts == expert] += down.bias.numpy()[:2]
        return found

    def masses(self, outputs: np.ndarray, valid: Sequence[frozenset[int]]) -> np.ndarray:
        """Return lower bounds of the probability of ``valid[p]`` under ``softmax(W_U outputs[p])``, ``[P]``.

        The tokens nearest in direction are added up; every other token lies further round the circle, so its logit is
        below that of the last one counted at the largest length of a row.
        """
        rows = self.model.lm_head.weight.numpy()[:, :2]
        lengths, angles = np.hypot(rows[:, 0], rows[:, 1]), np.arctan2(rows[:, 1], rows[:, 0])
        around = np.argsort(angles)
        count, found = len(rows), np.zeros(len(outputs))
        steps = np.arange(-_NEAR, _NEAR + 1) if count > 2 * _NEAR + 1 else np.arange(count)
        for start in range(0, len(outputs), _CHUNK):
            out = outputs[start : start + _CHUNK]
            middle = np.searchsorted(angles[around], np.arctan2(out[:, 1], out[:, 0]))
            tokens = around[(middle[:, None] + steps) % count]
            logits = np.einsum("pd,pnd->pn", out, rows[tokens])
            top = logits.max(1)
            parts = np.exp(logits - top[:, None])
            turned = np.cos(angles[tokens[:, [0, -1]]] - np.arctan2(out[:, 1], out[:, 0])[:, None]).max(1)
            edge = np.hypot(out[:, 0], out[:, 1]) * np.where(turned > 0, lengths.max(), lengths.min()) * turned
            rest = (count - tokens.shape[1]) * np.exp(np.minimum(edge - top, 0))
            total = parts.sum(1) + rest
            for p, n in zip(*np.nonzero(parts > _NEGLIGIBLE), strict=True):
                if int(tokens[p, n]) in valid[start + p]:
                    found[start + p] += parts[p, n] / total[p]
        return found


def _highest(states: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the largest ``states @ weight.T`` of each neuron over different states, ``[m]``."""
    alike = states.copy()
    alike[:, 2:][np.abs(alike[:, 2:]) < _RESIDUE] = 0
    different = states[list({row.tobytes(): at for at, row in enumerate(alike)}.values())]
    found = np.full(len(weight), -np.inf)
    for start in range(0, len(different), _CHUNK):
        found = np.maximum(found, (different[start : start + _CHUNK] @ weight.T).max(0))
    return found
