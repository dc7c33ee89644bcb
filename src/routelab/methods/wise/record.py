"""What one forward did, for reports and studies."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from routelab.errors import EvaluationError


@dataclass(frozen=True, eq=False)
class Record:
    """One forward of a model with WISE attached.

    Attributes:
        condition: what it ran as.
        steps: recurrent steps run. looked: how many of them looked for block masses.
        backend: what ran the steps inside a support; ``"none"`` where there were none.
        allowed: ``[B, 1, Qb, Kb]``, the admissible blocks. query_blocks: ``[B, Qb]``, positions on the row's own grid.
        supports: ``[core blocks, B, H, Qb, Kb]``, what the late steps read; None where there were none.
        working_sets: the same of the working set, where the condition has one.
        frozen_at: ``[core blocks, B, H, Qb]``, the last full step of each unit; 0 where it has no real query.
        masses: step -> ``[core blocks, B, H, Qb, Kb]``; empty unless ``record`` was on, then of every full step.
    """

    condition: str
    steps: int
    looked: int
    backend: str
    allowed: Tensor
    query_blocks: Tensor
    supports: Tensor | None = None
    working_sets: Tensor | None = None
    frozen_at: Tensor | None = None
    masses: dict[int, Tensor] = field(default_factory=dict)

    @property
    def cardinalities(self) -> Tensor:
        """``[core blocks, B, H, Qb]``: blocks in each support; without supports the admissible, ``[1, B, 1, Qb]``."""
        return self.allowed[None].sum(-1) if self.supports is None else self.supports.sum(-1)

    @property
    def density(self) -> float:
        """Blocks kept, as a share of the admissible ones; 1 for full attention."""
        return 1.0 if self.supports is None else block_density(self.supports, self.allowed)

    def summary(self) -> dict[str, object]:
        """Return the numbers of this forward as plain values."""
        sizes = self.cardinalities[self.allowed.any(-1).expand_as(self.cardinalities)].double()
        return {
            "condition": self.condition,
            "steps": self.steps,
            "discovery_steps": self.looked,
            "backend": self.backend,
            "density": self.density,
            "blocks_per_unit": sizes.mean().item() if len(sizes) else 0.0,
            "units": len(sizes),
        }


@dataclass(frozen=True)
class CardinalityAudit:
    """Whether two supports have equally many blocks in every unit: units compared, units equal, largest difference."""

    units: int
    equal: int
    largest_difference: int

    @property
    def exact(self) -> bool:
        return self.units == self.equal


def audit_cardinality(first: Tensor, second: Tensor, allowed: Tensor) -> CardinalityAudit:
    """Compare the sizes of two supports ``[core blocks, B, H, Qb, Kb]`` in every unit with a real query.

    Raises:
        EvaluationError: the shapes differ.
    """
    if first.shape != second.shape:
        raise EvaluationError(f"supports of {tuple(first.shape)} and {tuple(second.shape)} have no common units")
    difference = (first.sum(-1) - second.sum(-1)).abs()[allowed.any(-1).expand(first.shape[:-1])]
    largest = int(difference.max()) if len(difference) else 0
    return CardinalityAudit(len(difference), int((difference == 0).sum()), largest)


def block_density(supports: Tensor, allowed: Tensor) -> float:
    """Return the share of ``allowed [B, 1, Qb, Kb]`` that ``supports [core blocks, B, H, Qb, Kb]`` keep."""
    return int(supports.sum()) / max(1, int(allowed.expand_as(supports).sum()))


def jaccard(first: Tensor, second: Tensor) -> float:
    """Return ``|A ∩ B| / |A ∪ B|`` over all units of two supports (eq. 24, 25); 1 where both are empty."""
    common, either = int(torch.logical_and(first, second).sum()), int(torch.logical_or(first, second).sum())
    return common / either if either else 1.0
