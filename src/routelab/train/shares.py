"""One plan, several processes: which rows each of them sees, so that a step is still the plan's step."""

from __future__ import annotations

import dataclasses
import math

from routelab.errors import TrainingError
from routelab.train.plan import Plan, Row


def shared_plan(plan: Plan, processes: int, *, whole_batches: bool) -> Plan:
    """Return ``plan`` dealt out to W processes: batch *i* of the result belongs to process *i* mod W.

    The G batches of a step are dealt in turn. Where W does not divide G, every batch is first cut into W / gcd(G, W)
    parts by rows. A process that would go without is given a row of the step whose labels do not count (``fillers``):
    every process runs as many forward passes as the others, and an expert that a filler visits is visited anyway.

    Args:
        whole_batches: a loss that is a mean over a forward pass is on, which changes when a batch is cut.

    Raises:
        TrainingError: batches would have to be cut all the same.
    """
    if processes == 1:
        return plan
    parts = processes // math.gcd(plan.grad_accum, processes)
    if parts > 1 and whole_batches:
        raise TrainingError(
            f"grad_accum {plan.grad_accum} is no multiple of {processes} processes, and a loss that is a mean over a "
            f"forward pass is on, which cut batches would change: set grad_accum to a multiple of {processes} and "
            "batch_size accordingly"
        )
    batches: list[tuple[Row, ...]] = []
    fillers: set[int] = set()
    for first in range(0, len(plan.batches), plan.grad_accum):
        step = plan.batches[first : first + plan.grad_accum]
        pieces = [rows[part::parts] for rows in step for part in range(parts)]
        pieces += [()] * (-len(pieces) % processes)
        fillers.update(len(batches) + at for at, piece in enumerate(pieces) if not piece)
        batches += [piece or step[0][:1] for piece in pieces]
    return dataclasses.replace(
        plan, batches=tuple(batches), grad_accum=plan.grad_accum * parts, fillers=frozenset(fillers)
    )
