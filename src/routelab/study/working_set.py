"""How much a working set keeps, and how stable it is (arXiv 2609.27373, equations 23 to 25, appendices B and C.2).

Supports are bool ``[C, B, H, Qb, Kb]``: C core blocks, B examples, H heads, query and key blocks. Every measure is of
one example at a time and comes back as plain numbers, so nothing but those is kept from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.record import CardinalityAudit, audit_cardinality
from routelab.study.convergence import RUN, first_run
from routelab.study.working_set_masses import Masses

#: Jaccard levels at which stability is reported.
LEVELS = (0.90, 0.95)
#: Blocks of a prompt above which its maps are too many numbers to keep.
LARGEST_MAP = 64


@dataclass(frozen=True)
class Coverage:
    """One example under one condition.

    Attributes:
        density: blocks kept, as a share of the admissible ones, over all units.
        future_mass: mass of full attention after t_d inside the support, the mean over queries, heads, core blocks and
            late steps.
    """

    density: float
    future_mass: float


@dataclass(frozen=True)
class Stability:
    """The rolling working set of one example under full attention.

    Attributes:
        rolling: ``[T-1]``, ``J(W(t-1), W(t))`` for t = 2 … T over all units (eq. 24).
        endpoint: ``J(W(t_d), W(T))`` (eq. 25).
    """

    rolling: list[float]
    endpoint: float

    def stable_at(self, level: float) -> int:
        """Return the first t at which the last three transitions all had a Jaccard of ``level`` or more; T + 1 where
        there is none.

        The *last* of the three, which a run can know at t, and which appendix C.2 must mean: no example is stable at
        0.95 by step 12 there although the mean Jaccard of that step is 0.967. (τ of appendix B is the first.)
        """
        return settled_at(self.rolling, level)


def settled_at(rolling: Sequence[float], level: float) -> int:
    """Return :meth:`Stability.stable_at` of a trajectory of Jaccards ``[T-1]``."""
    held = [value >= level for value in rolling]
    start = first_run(held)
    return start + 1 + RUN if start < len(held) else len(held) + 2


def block_density(support: Tensor, allowed: Tensor) -> list[float]:
    """Return, per example, the share of the admissible blocks that ``support [C, B, H, Qb, Kb]`` keeps."""
    kept = (support & allowed).sum((0, 2, 3, 4))
    return (kept.double() / allowed.expand(support.shape).sum((0, 2, 3, 4))).tolist()


def future_mass(masses: Masses, support: Tensor, frozen_at: int | Tensor) -> list[float]:
    """Return, per example, the share of full attention mass after ``frozen_at`` that lies inside ``support``.

    The mean over every (step, core block, head, query) after its support was frozen; a block of few queries weighs
    little. ``frozen_at`` is t_d, or ``[C, B, H, Qb]`` where each unit has a step of its own.

    Raises:
        EvaluationError: an example has no late step.
    """
    kept, weight = late_mass(masses, support, frozen_at)
    dims = (0, 1, 3, 4)
    total = weight.sum(dims)
    if not bool((total > 0).all()):
        raise EvaluationError(f"no step of {masses.num_steps} comes after the supports were frozen; run more steps")
    return ((kept * weight).sum(dims) / total).tolist()


def late_mass(masses: Masses, support: Tensor, frozen_at: int | Tensor) -> tuple[Tensor, Tensor]:
    """Return the mass inside ``support`` and what it weighs, both float64 ``[T, C, B, H, Qb]``.

    The weight of a unit is the number of its queries after ``frozen_at``, and 0 up to it.
    """
    kept = torch.stack([(mass * support).sum(-1, dtype=torch.float64) for mass in masses.mass])
    steps = torch.arange(1, masses.num_steps + 1, device=kept.device).view(-1, 1, 1, 1, 1)
    weight = (steps > frozen_at) * masses.queries[:, None].double()
    return kept, weight.expand(kept.shape)


def coverage(masses: Masses, config: WISEConfig) -> list[Coverage]:
    """Return density and retained future mass of each example under the condition of ``config``."""
    support = masses.late_support(config)
    kept = future_mass(masses, support, config.discovery_steps)
    return [Coverage(*pair) for pair in zip(block_density(support, masses.allowed), kept, strict=True)]


def stability(masses: Masses, config: WISEConfig) -> list[Stability]:
    """Return the stability of each example's rolling working set, as ``config`` builds it.

    Raises:
        EvaluationError: the trajectory ends before ``config.discovery_steps``.
    """
    if config.discovery_steps > masses.num_steps:
        raise EvaluationError(f"discovery_steps={config.discovery_steps} is beyond the {masses.num_steps} steps run")
    sets = masses.rolling_sets(config.mass, config.window)
    rolling = jaccard(sets[:-1], sets[1:], (1, 3, 4, 5)).T.tolist()
    endpoint = jaccard(sets[config.discovery_steps - 1], sets[-1], (0, 2, 3, 4)).tolist()
    return [Stability(*pair) for pair in zip(rolling, endpoint, strict=True)]


def maps(masses: Masses, config: WISEConfig) -> list[list[list[float]]] | None:
    """Return the rolling working set of the first example at every step, to be looked at.

    ``[T][query block][key block ≤ query block]``: the share of the heads of all core blocks that keep the block, to
    three digits. None for a prompt of more than ``LARGEST_MAP`` blocks.
    """
    sets = masses.rolling_sets(config.mass, config.window)[:, :, 0]
    if sets.shape[-1] > LARGEST_MAP:
        return None
    shares = sets.double().mean((1, 2)).tolist()
    return [[[round(share, 3) for share in row[: q + 1]] for q, row in enumerate(step)] for step in shares]


def audit_size_matched(masses: Masses, config: WISEConfig) -> CardinalityAudit:
    """Return whether SizeMatched has as many blocks as WISE in every (core block, head, query block) of the batch."""
    ours, control = (
        masses.late_support(replace(config, condition=condition)) for condition in ("wise", "size_matched")
    )
    return audit_cardinality(ours, control, masses.allowed)


def add_audits(audits: Sequence[CardinalityAudit]) -> CardinalityAudit:
    """Return the audit of several batches together."""
    return CardinalityAudit(
        sum(one.units for one in audits),
        sum(one.equal for one in audits),
        max((one.largest_difference for one in audits), default=0),
    )


def summarise_coverage(found: Mapping[str, Sequence[Coverage]]) -> dict[str, dict[str, float]]:
    """Return the mean density and future mass of every condition, and the number of examples."""
    return {
        condition: {
            "n": len(examples),
            "density": fmean(one.density for one in examples),
            "future_mass": fmean(one.future_mass for one in examples),
        }
        for condition, examples in found.items()
    }


def summarise_stability(found: Sequence[Stability]) -> dict[str, Any]:
    """Return what a set of examples says, as plain data.

    ``rolling`` ``[T-1]``: the mean Jaccard of the transitions into steps 2 … T; ``endpoint``: its mean; ``stable``: per
    level, the share of examples stable by step 1 … T; ``n``.

    Raises:
        EvaluationError: no examples, or examples of different T.
    """
    if len({len(one.rolling) for one in found}) != 1:
        raise EvaluationError("stability is summarised over at least one example, and over examples of one T")
    last = len(found[0].rolling) + 1
    return {
        "n": len(found),
        "rolling": [fmean(values) for values in zip(*(one.rolling for one in found), strict=True)],
        "endpoint": fmean(one.endpoint for one in found),
        "stable": {
            f"{level:.2f}": [fmean(one.stable_at(level) <= step for one in found) for step in range(1, last + 1)]
            for level in LEVELS
        },
    }


def jaccard(first: Tensor, second: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return ``|A ∩ B| / |A ∪ B|`` over ``dims``, float64; 1 where both are empty."""
    common, either = (first & second).sum(dims), (first | second).sum(dims)
    return torch.where(either > 0, common.double() / either.clamp_min(1), 1.0)
