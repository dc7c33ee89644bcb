"""When routing and representation come to rest along the recurrence (arXiv 2609.27373, appendices B and C.1).

Four quantities are compared between consecutive steps: the keys that are attended most (S), the attention distribution
(A), the state (H) and the attention output before its projection (O). Distances are taken per core block, averaged over
the heads and queries of an example (S, A) or taken over all of them at once (H, O), and then averaged over core blocks;
the paper says no more than "per example". ``routelab.study.convergence_observer`` measures them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from routelab.errors import EvaluationError

#: Keys of the diagnostic support.
TOP_KEYS = 16
#: Transitions in a row that a criterion must hold for.
RUN = 3
#: Finite transitions at the start whose median is the scale of a distance.
EARLY = 4
QUANTITIES = ("support", "attention", "state", "output")


@dataclass(frozen=True)
class Strictness:
    """What counts as no change: supports at a Jaccard of ``jaccard`` or more, a distance of at most ``fraction`` of its
    early scale; ``fraction`` applies to the attention, ``state_fraction`` to state and output."""

    jaccard: float
    fraction: float
    state_fraction: float

    @classmethod
    def scaled(cls, routing: float, representation: float) -> Strictness:
        """The default with every permitted change, ``1 - 0.90`` and ``0.05``, times a factor."""
        return cls(1 - 0.10 * routing, 0.05 * routing, 0.05 * representation)


#: Five matched settings and the asymmetric one. The paper gives the numbers of the default alone: here each matched one
#: permits half the change of the one before, in every quantity. The asymmetric one asks of routing what "VS" asks and
#: of representation what "L" asks.
#:
#: ======  =======  ========================  ======================
#: name    Jaccard  of scale (A)              of scale (H and O)
#: ======  =======  ========================  ======================
#: VL      0.60     0.20                      0.20
#: L       0.80     0.10                      0.10
#: D       0.90     0.05                      0.05
#: S       0.95     0.025                     0.025
#: VS      0.975    0.0125                    0.0125
#: asym    0.975    0.0125                    0.10
#: ======  =======  ========================  ======================
SETTINGS = MappingProxyType(
    {
        "VL": Strictness.scaled(4, 4),
        "L": Strictness.scaled(2, 2),
        "D": Strictness.scaled(1, 1),
        "S": Strictness.scaled(0.5, 0.5),
        "VS": Strictness.scaled(0.25, 0.25),
        "asymmetric": Strictness.scaled(0.25, 2),
    }
)
DEFAULT = SETTINGS["D"]


@dataclass(frozen=True)
class Distances:
    """How far one example moves in the T - 1 transitions ``t - 1 → t``, t = 2 … T; core blocks are inner.

    Attributes:
        support: ``[T-1][C]``, mean Jaccard of the top-``min(16, i+1)`` key sets: a similarity, unlike the rest.
        attention: ``[T-1][C]``, mean Jensen-Shannon divergence of attention rows, in nats.
        state: ``[T-1]``, ``‖H_t - H_{t-1}‖ / ‖H_{t-1}‖`` over all tokens.
        output: ``[T-1][C]``, the same of the attention output.
    """

    support: list[list[float]]
    attention: list[list[float]]
    state: list[float]
    output: list[list[float]]

    def curve(self, quantity: str) -> list[float]:
        """Return the trajectory ``[T-1]`` of one of ``QUANTITIES``, the mean over core blocks."""
        values = getattr(self, quantity)
        return [value if isinstance(value, float) else fmean(value) for value in values]


@dataclass(frozen=True)
class ConvergenceTimes:
    """τ_S, τ_A, τ_H and τ_O of one example, each in 2 … T, or T + 1 where the quantity does not come to rest."""

    support: int
    attention: int
    state: int
    output: int
    num_steps: int

    @property
    def gap(self) -> int:
        """``G = min(τ_H, τ_O) - max(τ_S, τ_A)``; positive where both routing quantities rest first."""
        return min(self.state, self.output) - max(self.support, self.attention)


def convergence_times(distances: Distances, strictness: Strictness = DEFAULT) -> ConvergenceTimes:
    """Return the convergence times of an example under a setting.

    τ_X is the step that the first of three consecutive transitions arrives at, all of which change X no more than the
    setting permits. Of a distance that is a share of its early scale: the median of its first four finite transitions.
    """
    support = [value >= strictness.jaccard for value in distances.curve("support")]
    fractions = {
        "attention": strictness.fraction,
        "state": strictness.state_fraction,
        "output": strictness.state_fraction,
    }
    times = {name: first_run(_small(distances.curve(name), share)) + 2 for name, share in fractions.items()}
    return ConvergenceTimes(support=first_run(support) + 2, num_steps=len(distances.state) + 1, **times)


def first_run(holds: Sequence[bool], length: int = RUN) -> int:
    """Return where the first ``length`` true values in a row begin; ``len(holds)`` where there are none."""
    for start in range(len(holds) - length + 1):
        if all(holds[start : start + length]):
            return start
    return len(holds)


def summarise_times(times: Sequence[ConvergenceTimes]) -> dict[str, Any]:
    """Return what a set of examples says, as plain data.

    Per quantity: ``mean`` (censored ones count as T + 1), ``censored`` (how many), and ``converged`` ``[T]``, the share
    at rest by step 1 … T. Also the mean ``gap``, ``positive``, how many examples have a gap above 0, and ``n``.

    Raises:
        EvaluationError: no examples, or examples of different T.
    """
    if len({one.num_steps for one in times}) != 1:
        raise EvaluationError(
            f"convergence times need examples of one T; got {sorted({one.num_steps for one in times})}"
        )
    last = times[0].num_steps
    summary: dict[str, Any] = {"n": len(times), "num_steps": last}
    for name in QUANTITIES:
        found = [int(getattr(one, name)) for one in times]
        summary[name] = {
            "mean": fmean(found),
            "censored": sum(time > last for time in found),
            "converged": [fmean(time <= step for time in found) for step in range(1, last + 1)],
        }
    gaps = [one.gap for one in times]
    return summary | {"gap": fmean(gaps), "positive": sum(gap > 0 for gap in gaps)}


def sensitivity(distances: Sequence[Distances]) -> dict[str, dict[str, Any]]:
    """Return :func:`summarise_times` of the same examples under every one of ``SETTINGS`` (appendix C.1)."""
    return {
        name: summarise_times([convergence_times(one, setting) for one in distances])
        for name, setting in SETTINGS.items()
    }


def _small(curve: Sequence[float], share: float) -> list[bool]:
    early = [value for value in curve if math.isfinite(value)][:EARLY]
    return [bool(early) and value <= share * median(early) for value in curve]
