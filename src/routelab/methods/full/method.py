"""Full fine-tuning of a dense or recurrent host: the SFT-only control of Path-Lock (arXiv 2604.27201), and healing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

from routelab.hosts.dense import locate_dense
from routelab.hosts.locate import Host
from routelab.hosts.recurrent import RecurrentForCausalLM
from routelab.hosts.recurrent.parts import locate_recurrent
from routelab.methods.base import Method, Summary
from routelab.methods.checksums import changed_since, checksums

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Full(Method):
    """Train every parameter. Attached and untrained, the host's logits are unchanged."""

    name = "full"

    @staticmethod
    def locate(model: PreTrainedModel) -> Host:
        return locate_recurrent(model) if isinstance(model, RecurrentForCausalLM) else locate_dense(model)

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"layers.{layer.index}.mlp" for layer in self.host.layers})

    def place(self) -> None:
        self._before = checksums(self.host.model.state_dict())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.host.model.named_parameters()

    def require_removable(self) -> None:
        """Refuse removal once the host has changed: there is no second copy of a whole model to restore it from.

        Raises:
            HostError: a tensor is not what it was.
        """
        changed_since(
            self._before,
            self.host.model.state_dict(),
            self.name,
            "The model is an ordinary one of its own class: model.save_pretrained writes it",
        )

    def summary(self) -> Summary:
        count = sum(parameter.numel() for parameter in self.parameters())
        return Summary(
            method=self.name,
            layers=tuple(layer.index for layer in self.host.layers),
            modules=tuple(name for name, _ in self.host.model.named_children()),
            new_parameters=0,
            trainable_parameters=count,
        )
