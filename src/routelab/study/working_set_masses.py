"""The block masses of a whole trajectory under full attention, and what a working set would have been at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.hosts.recurrent.core import CoreAttention, CoreCall
from routelab.methods.wise.conditions import late_support, reuses, union
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.layer import block_support
from routelab.methods.wise.readers import observe
from routelab.methods.wise.rows import Rows
from routelab.study.full_run import Observer, run_full

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class Masses:
    """Block masses (eq. 5) of a batch of prompts: T steps, C core blocks, H heads, Qb query and Kb key blocks.

    Attributes:
        mass: ``[T, C, B, H, Qb, Kb]``.
        allowed: ``[B, 1, Qb, Kb]`` bool, the admissible blocks.
        query_blocks: ``[B, Qb]``, positions of the query blocks on each row's own grid.
        queries: ``[B, Qb]``, how many real queries each query block has.
    """

    mass: Tensor
    allowed: Tensor
    query_blocks: Tensor
    queries: Tensor

    @property
    def num_steps(self) -> int:
        return len(self.mass)

    def rolling_sets(self, share: float, window: int) -> Tensor:
        """Return the working set at every step, bool ``[T, C, B, H, Qb, Kb]`` (eq. 23)::

        W(t) = ∪ { B(s, share) : s = max(1, t - window + 1) … t }
        """
        steps = torch.stack([block_support(mass, self.allowed, share) for mass in self.mass])
        return torch.stack([union(steps[max(0, t - window + 1) : t + 1]) for t in range(len(steps))])

    def late_support(self, config: WISEConfig) -> Tensor:
        """Return what the late steps of a condition read, ``[C, B, H, Qb, Kb]``.

        Every condition is full attention up to t_d, so a full trajectory settles the supports of all of them. For full
        attention they are the admissible blocks.

        Raises:
            EvaluationError: a condition without late steps, or one whose units freeze at steps of their own: take the
                supports of the latter from the record of its own forward.
        """
        if config.condition == "full":
            return self.allowed.expand(self.mass.shape[1:])
        if not reuses(config.condition):
            raise EvaluationError(f"condition {config.condition!r} has no late steps, so no late support")
        if config.discovery != "fixed":
            raise EvaluationError(
                f"discovery {config.discovery!r} freezes each unit at its own step: measure the supports and frozen_at "
                "of its record"
            )
        if not config.discovery_steps < self.num_steps:
            raise EvaluationError(
                f"discovery_steps={config.discovery_steps} leaves no late step of {self.num_steps}; run more steps"
            )
        window = self.mass[config.window_start - 1 : config.discovery_steps]
        working = union(block_support(mass, self.allowed, config.mass) for mass in window)
        return torch.stack(
            [
                late_support(
                    config,
                    block,
                    self.allowed,
                    self.query_blocks,
                    working=working[block],
                    first_mass=self.mass[0, block],
                )
                for block in range(len(working))
            ]
        )


class MassObserver(Observer):
    """Collects the block masses of one forward; :meth:`masses` returns them after it."""

    def __init__(
        self, inner: CoreAttention | None = None, *, block_size: int = 32, query_block: int | None = None
    ) -> None:
        super().__init__(inner)
        self.block_size = block_size
        self.query_block = block_size if query_block is None else query_block

    def open(self, call: CoreCall) -> None:
        self._call = call
        self._rows: Rows | None = None
        self._steps: list[list[Tensor]] = []

    def note(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
        if self._rows is None:
            self._rows = Rows(self._call, len(query), query.device, self.block_size, self.query_block)
        if step > len(self._steps):
            self._steps.append([])
        self._steps[-1].append(observe(self._rows, query, key, value)[1])

    def masses(self) -> Masses:
        """Return the masses of the last forward."""
        rows = self._rows
        if rows is None:
            raise EvaluationError("there was no forward to take block masses from")
        first = rows.absolute * self.query_block
        last = (first + self.query_block).minimum(rows.lengths[:, None])
        return Masses(
            mass=torch.stack([torch.stack(blocks) for blocks in self._steps]),
            allowed=rows.allowed,
            query_blocks=rows.absolute,
            queries=(last - first.maximum(rows.starts[:, None])).clamp_min(0),
        )


def collect_masses(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    num_steps: int = 32,
    seed: int = 0,
    initial_state: Tensor | None = None,
    block_size: int = 32,
    query_block: int | None = None,
) -> Masses:
    """Run prompts ``[B, S]`` under full attention; return the block masses of every step.

    Blocks are counted from each row's first real token, so padding does not move them. ``query_block`` is None for
    blocks of queries, 1 for a row per token (``WISEConfig(causal=True)``).
    """
    observer = MassObserver(block_size=block_size, query_block=query_block)
    run_full(model, observer, input_ids, attention_mask, num_steps=num_steps, seed=seed, initial_state=initial_state)
    return observer.masses()
