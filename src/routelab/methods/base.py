"""What every routing method is: attached to a host, with parameters and a state, and removable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from routelab.errors import CheckpointError
from routelab.hosts.locate import Host, locate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Summary:
    """What an attached method matched: its layers, the modules it changed, and exact parameter counts."""

    method: str
    layers: tuple[int, ...]
    modules: tuple[str, ...]
    new_parameters: int
    trainable_parameters: int
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        layers = ", ".join(map(str, self.layers))
        return (
            f"{self.method}: layers {layers}; {len(self.modules)} modules; "
            f"{self.new_parameters:,} new and {self.trainable_parameters:,} trainable parameters"
        )


class Method(ABC):
    """One attached routing method.

    Attributes:
        name: the key of the method in the registry, in recipes and in saved files.
        config: the frozen configuration it was attached with.
        reads_text: it decides on the text of whole prompts, so ``attach`` needs a tokenizer, which ``save`` keeps.
        trains: it has parameters to train, so matching none of them is matching nothing.
    """

    name: ClassVar[str]
    reads_text: ClassVar[bool] = False
    trains: ClassVar[bool] = True

    def __init__(self, host: Host, config: Any, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        self.host = host
        self.config = config
        self.tokenizer = tokenizer
        self._undo: list[Callable[[], None]] = []

    @property
    @abstractmethod
    def claims(self) -> frozenset[str]:
        """Names of the host's parts this method changes; two methods with a common one cannot share a model."""

    @property
    def arguments(self) -> frozenset[str]:
        """Names of arguments ``[B, n]`` that calls of the model take because of this method, and training gives it:
        ``task_ids`` (the task of every token), ``token_mask`` (1 where a token is no padding), ``prompt_mask`` (1 where
        it belongs to the prompt). None, unless overridden."""
        return frozenset()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that ``task_ids`` counts, in order."""
        return ()

    @property
    def has_own_loss(self) -> bool:
        """Whether training calls return a ``router_loss`` of this method, which is added to the language model's."""
        return False

    @abstractmethod
    def place(self) -> None:
        """Change the host. Every change is registered with its reversal through :meth:`on_detach`."""

    @abstractmethod
    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters this method trains, by a name that is stable across processes and devices."""

    @abstractmethod
    def summary(self) -> Summary:
        """Return what was matched."""

    @staticmethod
    def locate(model: PreTrainedModel) -> Host:
        """Return the parts of the kind of host this method works on, or raise ``HostError``."""
        return locate(model)

    def conditional_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the trained parameters that a batch may leave without a gradient. None, unless overridden."""
        yield from ()

    def neutral_arguments(self, rows: int) -> dict[str, Any]:
        """Return arguments with which the model runs ``rows`` rows of ids that are no text, for probes and timings."""
        return {}

    def require_removable(self) -> None:  # noqa: B027 (most methods always are)
        """Raise ``HostError`` where :meth:`remove` could not give the host back as it was."""

    def on_detach(self, undo: Callable[[], None]) -> None:
        """Register the reversal of one change; reversals run last first."""
        self._undo.append(undo)

    def remove(self) -> None:
        """Undo every change to the host."""
        while self._undo:
            self._undo.pop()()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters this method trains."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors in which the model differs from its host, detached, by stable name."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy ``state`` into the parameters.

        Raises:
            CheckpointError: a name is missing or unknown, or a shape differs.
        """
        own = self.state_dict()
        missing, unknown = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
        if missing or unknown:
            raise CheckpointError(
                f"the state of {self.name!r} does not fit: missing {missing or 'none'}, unknown {unknown or 'none'}"
            )
        for name, tensor in state.items():
            if tensor.shape != own[name].shape:
                raise CheckpointError(
                    f"{self.name!r}: {name} has shape {tuple(tensor.shape)} in the file and "
                    f"{tuple(own[name].shape)} in this model"
                )
        with torch.no_grad():
            for name, tensor in state.items():
                own[name].copy_(tensor)

    def __repr__(self) -> str:
        return f"<{self.summary()}>"


class RouterMethod(Method):
    """A method that trains the host's routers: it keeps their original weights and gives them back on removal."""

    @property
    def claims(self) -> frozenset[str]:
        return frozenset(f"layers.{index}.router" for index in self.host.routers)

    def place(self) -> None:
        for router in self.host.routers.values():
            self.on_detach(partial(_restore, router.weight, router.weight.detach().clone()))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for index, router in self.host.routers.items():
            yield f"layers.{index}.router.weight", router.weight

    def summary(self) -> Summary:
        names = {module: name for name, module in self.host.model.named_modules()}
        return Summary(
            method=self.name,
            layers=tuple(self.host.routers),
            modules=tuple(names[router] for router in self.host.routers.values()),
            new_parameters=0,
            trainable_parameters=sum(parameter.numel() for parameter in self.parameters()),
        )


@torch.no_grad()
def _restore(parameter: nn.Parameter, original: Tensor) -> None:
    parameter.copy_(original)
