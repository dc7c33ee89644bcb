"""When a unit's working set is final: what has been seen of each core block, and three rules.

The paper has the fixed rule. The other two are extensions of this project; both freeze no later than t_d, and neither
lets a query block's support depend on later tokens where the supports themselves do not (``causal=True``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from routelab.methods.wise.conditions import union
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.layer import block_support, contraction, overlap, remaining_drift, support_margin

#: The rolling working set is stable after this many transitions in a row with at least this Jaccard (appendix C.2).
STABLE_TRANSITIONS = 3
STABLE_JACCARD = 0.9
#: β is fitted to this many movements of the mass, the latest.
FITTED_MOVES = 4


@dataclass
class Seen:
    """What has been seen of one core block in one forward.

    Attributes:
        first_mass, mass: ``[B, H, Qb, Kb]``, of step 1 and of the last step that was looked at.
        supports: of the last ``window`` steps that were looked at; rolling, rolling_before: their union, and what it
            was a step earlier.
        moves: ``[B, H, Qb]`` each, how far the mass moved in its last steps, in the block where it moved most.
    """

    window: int
    first_mass: Tensor | None = None
    mass: Tensor | None = None
    rolling: Tensor | None = None
    rolling_before: Tensor | None = None
    supports: deque[Tensor] = field(init=False)
    moves: deque[Tensor] = field(default_factory=lambda: deque(maxlen=FITTED_MOVES))

    def __post_init__(self) -> None:
        self.supports = deque(maxlen=self.window)

    def note(self, step: int, mass: Tensor, allowed: Tensor, share: float) -> None:
        """Take in the mass of one step."""
        if step == 1:
            self.first_mass = mass
        if self.mass is not None:
            self.moves.append((mass - self.mass).abs().amax(-1))
        self.mass = mass
        self.supports.append(block_support(mass, allowed, share))
        self.rolling, self.rolling_before = union(self.supports), self.rolling


class Discovery(ABC):
    """A rule that says when units are final. One object serves one forward."""

    def __init__(self, config: WISEConfig) -> None:
        self.config = config

    def looks(self, step: int) -> bool:
        """Whether it needs the masses of this step."""
        return step <= self.config.discovery_steps

    @abstractmethod
    def final(self, step: int, seen: Sequence[Seen], allowed: Tensor) -> list[Tensor | bool]:
        """After a step, return which units of each core block are final: ``[B, H, Qb]`` bool, or all, or none."""


class Fixed(Discovery):
    """All units at t_d; only the steps of the window are looked at (section 5.1)."""

    def looks(self, step: int) -> bool:
        return self.config.window_start <= step <= self.config.discovery_steps

    def final(self, step: int, seen: Sequence[Seen], allowed: Tensor) -> list[Tensor | bool]:
        return [step == self.config.discovery_steps] * len(seen)


class Adaptive(Discovery):
    """All units of a row, once the Jaccard of its rolling working set with that of the step before (eq. 24, over all
    core blocks, heads and query blocks) has been at least 0.9 three times in a row. In the causal form each token has a
    Jaccard of its own, over core blocks and heads."""

    def __init__(self, config: WISEConfig) -> None:
        super().__init__(config)
        self._streak: Tensor | None = None

    def final(self, step: int, seen: Sequence[Seen], allowed: Tensor) -> list[Tensor | bool]:
        if step == self.config.discovery_steps:
            return [True] * len(seen)
        pairs = [(each.rolling_before, each.rolling) for each in seen]
        dims = (1, 3) if self.config.causal else (1, 2, 3)
        sizes = [overlap(before, now, dims) for before, now in pairs if before is not None and now is not None]
        if not sizes:
            return [False] * len(seen)
        common, either = (torch.stack(parts).sum(0).double() for parts in zip(*sizes, strict=True))
        # Query blocks without a real query have empty sets, which never change.
        stable = (common / either.clamp_min(1.0) >= STABLE_JACCARD) | (either == 0)
        self._streak = stable.int() if self._streak is None else (self._streak + 1) * stable
        reached = self._streak >= STABLE_TRANSITIONS
        final = reached[:, None, :] if self.config.causal else reached[:, None, None]
        return [final.expand(each.mass.shape[:3]) for each in seen if each.mass is not None]


class Margin(Discovery):
    """Each unit, once the estimate of how far its mass will still move is below its margin Δ_q (theorem 6.1).

    The estimate is ``m β / (1 - β)`` for a last move ``m`` and the contraction β fitted to the last four. The limit is
    not observable, so this is no certificate: ``routelab.study.margins`` measures how often it is wrong.
    """

    def final(self, step: int, seen: Sequence[Seen], allowed: Tensor) -> list[Tensor | bool]:
        if step == self.config.discovery_steps:
            return [True] * len(seen)
        return [settled(each, allowed, self.config.mass) for each in seen]


def settled(seen: Seen, allowed: Tensor, share: float) -> Tensor | bool:
    """Return which units' estimated remaining drift is below their margin, ``[B, H, Qb]``; none before four moves."""
    if len(seen.moves) < FITTED_MOVES or seen.mass is None:
        return False
    drift = remaining_drift(seen.moves[-1], contraction(torch.stack(tuple(seen.moves))))
    return drift < support_margin(seen.mass, allowed, share)


def discovery(config: WISEConfig) -> Discovery:
    """Return the rule that ``config.discovery`` names."""
    if config.discovery == "adaptive":
        return Adaptive(config)
    return Margin(config) if config.discovery == "margin" else Fixed(config)
