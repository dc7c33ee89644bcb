"""Placement of working-set inference in a depth-recurrent host, and its removal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from routelab.errors import BackendError, closest
from routelab.hosts.locate import Host
from routelab.hosts.recurrent.core import CoreAttention
from routelab.hosts.recurrent.model import RecurrentForCausalLM
from routelab.hosts.recurrent.parts import locate_recurrent
from routelab.methods.base import Method, Summary
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.engine import WorkingSetAttention
from routelab.methods.wise.record import Record
from routelab.ops.block_sparse import BACKENDS

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class WISE(Method):
    """Working-set inference, attached: the core of the host attends through :class:`WorkingSetAttention`.

    It has no parameters, trains none, and is saved as its configuration alone.
    """

    name = "wise"
    trains = False
    config: WISEConfig

    def __init__(self, host: Host, config: WISEConfig) -> None:
        super().__init__(host, config)
        self.engine = WorkingSetAttention(config)

    @staticmethod
    def locate(model: PreTrainedModel) -> Host:
        return locate_recurrent(model)

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({"core attention"})

    def place(self) -> None:
        if self.config.backend not in BACKENDS:
            raise BackendError(f"no backend {self.config.backend!r}{closest(self.config.backend, BACKENDS)}")
        model = self.host.model
        self.on_detach(partial(_give_back, model, model.core_attention))
        model.core_attention = self.engine

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from ()

    @property
    def record(self) -> bool:
        """Whether every forward is kept in ``records``, with the masses of its full steps."""
        return self.engine.record

    @record.setter
    def record(self, record: bool) -> None:
        self.engine.record = record

    @property
    def records(self) -> list[Record]:
        """The forwards kept while ``record`` was on, oldest first; yours to clear."""
        return self.engine.records

    @property
    def last(self) -> Record | None:
        """What the last forward did: its supports, density, cardinalities, backend, and steps that looked."""
        return self.engine.last

    def given(self, supports: Tensor) -> AbstractContextManager[None]:
        """Read ``supports [core blocks, B or 1, H, Qb, Kb]``, in place of discovered ones, in every forward inside
        ``with method.given(supports):``. A forward they do not fit is a ``ConfigError``."""
        return self.engine.given(supports)

    def summary(self) -> Summary:
        names = {module: name for name, module in self.host.model.named_modules()}
        return Summary(
            method=self.name,
            layers=tuple(layer.index for layer in self.host.layers),
            modules=tuple(names[layer.module] for layer in self.host.layers),
            new_parameters=0,
            trainable_parameters=0,
            details={
                "condition": self.config.condition,
                "discovery_steps": self.config.discovery_steps,
                "block_size": self.config.block_size,
            },
        )


def _give_back(model: RecurrentForCausalLM, attention: CoreAttention) -> None:
    model.core_attention = attention
