"""The core attention that a model with WISE attached runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from routelab.errors import HostError
from routelab.hosts.recurrent.core import CoreAttention, CoreCall
from routelab.hosts.recurrent.model import RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.record import Record
from routelab.methods.wise.trajectory import Trajectory


class WorkingSetAttention(CoreAttention):
    """Full attention up to t_d, attention inside a support after it; a new :class:`Trajectory` for every forward.

    Nothing is kept from one forward to the next: with a cache, new tokens look at all cached keys during their own
    early steps and read their own blocks of them later.

    Attributes:
        record: keep a :class:`~routelab.methods.wise.record.Record` of every forward, with the masses of every full
            step, in ``records``. Off, only the last one is kept, without masses.
        last: the record of the last forward.
    """

    def __init__(self, config: WISEConfig) -> None:
        self.config = config
        self.record = False
        self.records: list[Record] = []
        self.last: Record | None = None
        self._given: Tensor | None = None
        self._trajectory: Trajectory | None = None

    def begin(self, call: CoreCall) -> int:
        self._trajectory = Trajectory(self.config, call, given=self._given, keep_masses=self.record)
        return self._trajectory.steps

    def attend(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self._trajectory is None:
            raise HostError("attend was called before begin")
        return self._trajectory.attend(step, block, query, key, value)

    def end(self) -> None:
        assert self._trajectory is not None
        self.last = self._trajectory.record()
        if self.record:
            self.records.append(self.last)

    @contextmanager
    def given(self, supports: Tensor) -> Iterator[None]:
        """Read ``supports [core blocks, B or 1, H, Qb, Kb]`` in the late steps of every forward in this context."""
        before, self._given = self._given, supports
        try:
            yield
        finally:
            self._given = before


@contextmanager
def running(model: RecurrentForCausalLM, config: WISEConfig, *, record: bool = False) -> Iterator[WorkingSetAttention]:
    """Run ``model`` as ``config`` says inside this context, whatever is attached to it, and give it back as it was."""
    engine, before = WorkingSetAttention(config), model.core_attention
    engine.record = record
    model.core_attention = engine
    try:
        yield engine
    finally:
        model.core_attention = before
