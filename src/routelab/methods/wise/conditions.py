"""Which blocks a condition reads late, from what was seen early (arXiv 2609.27373, equations 6 and 18 to 22)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

from routelab.methods.wise.config import FOLLOWERS, WISEConfig
from routelab.methods.wise.layer import block_support, mass_matched, random_scores, sink_local_scores, top_support


def needs_working_set(condition: str) -> bool:
    """Whether a condition reads inside the working set, or as many blocks as it has."""
    return condition in FOLLOWERS or condition == "freeze"


def needs_first_mass(condition: str) -> bool:
    """Whether a condition ranks blocks by the mass of step 1."""
    return condition in ("static", "mass_matched", "size_matched")


def reuses(condition: str) -> bool:
    """Whether a condition has late steps inside a support at all."""
    return condition not in ("full", "truncate")


def union(supports: Iterable[Tensor]) -> Tensor:
    """Return the working set of the supports of a window of steps."""
    return reduce(torch.logical_or, supports)


def working_set(masses: Iterable[Tensor], allowed: Tensor, share: float) -> Tensor:
    """Return the union of the supports of ``masses``, those of the steps of the window (eq. 18)."""
    return union(block_support(mass, allowed, share) for mass in masses)


def late_support(
    config: WISEConfig,
    block: int,
    allowed: Tensor,
    query_blocks: Tensor,
    *,
    working: Tensor | None,
    first_mass: Tensor | None,
) -> Tensor:
    """Return the blocks that ``config.condition`` reads after discovery, ``[B, H, Qb, Kb]``.

    Args:
        block: index of the core block, which the random null depends on.
        allowed: ``[B, 1, Qb, Kb]``. query_blocks: ``[B, Qb]``, their positions on each row's own grid.
        working: the working set, where :func:`needs_working_set`. first_mass: where :func:`needs_first_mass`.
    """
    condition = config.condition
    if condition == "static":
        assert first_mass is not None
        return block_support(first_mass, allowed, config.mass)
    assert working is not None
    if condition == "mass_matched":
        assert first_mass is not None
        return mass_matched(first_mass, allowed, working)
    if condition == "size_matched":
        assert first_mass is not None
        return top_support(first_mass, allowed, working.sum(-1))
    if condition == "sink_local":
        scores = sink_local_scores(working.shape[-1], working.device)
        return top_support(scores.expand(working.shape), allowed, working.sum(-1))
    if condition == "random":
        scores = random_scores(config.seed, block, working.shape[1], query_blocks, working.shape[-1])
        return top_support(scores, allowed, working.sum(-1))
    return working
