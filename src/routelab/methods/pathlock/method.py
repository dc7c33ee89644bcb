"""Placement of Path-Lock experts in a dense host, and their removal."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from routelab.hosts.dense import locate_dense
from routelab.hosts.generation import carry_argument
from routelab.hosts.locate import Host
from routelab.hosts.swap import replace, shadow, specialise
from routelab.methods.base import Method, Summary
from routelab.methods.checksums import changed_since, checksums
from routelab.methods.pathlock.config import MODES, PathLockConfig
from routelab.methods.pathlock.layer import PathLockedMLP
from routelab.methods.pathlock.resolve import ModeResolver
from routelab.methods.pathlock.sequence import ARGUMENT, ROUTED, Routed, SequenceModes, generate
from routelab.methods.pathlock.template import switchable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class PlannedLayer(nn.Module):
    """Behaviour mixed into a host's decoder layer class: hand the plan of this forward to the layer's MLP.

    The plan comes as an argument, not from a shared place, so that gradient checkpointing replays a layer with the plan
    of its own forward, however many other forwards ran in between.
    """

    mlp_name: str

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        mlp: PathLockedMLP = getattr(self, self.mlp_name)
        routed: Routed | None = kwargs.pop(ROUTED, None)
        mlp.plan = None if routed is None else routed.plan
        try:
            return super().forward(*args, **kwargs)
        finally:
            mlp.plan = None


class PathLock(Method):
    """Path-Lock experts, attached: think and no_think MLPs in every layer, one of them for a whole sequence."""

    name = "pathlock"
    reads_text = True
    config: PathLockConfig
    tokenizer: PreTrainedTokenizerBase

    def __init__(self, host: Host, config: PathLockConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(host, config, switchable(tokenizer, config))
        self.resolver = ModeResolver(tokenizer, config)
        self._checksums: dict[str, int] = {}

    @staticmethod
    def locate(model: PreTrainedModel) -> Host:
        return locate_dense(model)

    @property
    def claims(self) -> frozenset[str]:
        return frozenset({f"layers.{layer.index}.mlp" for layer in self.host.layers} | {"mode of a sequence"})

    def place(self) -> None:
        model, backbone = self.host.model, self.host.backbone
        self._checksums = checksums(model.state_dict())
        for layer in self.host.layers:
            assert layer.mlp is not None
            mlp = getattr(layer.module, layer.mlp)
            locked = PathLockedMLP(no_think=mlp, think=copy.deepcopy(mlp)).train(mlp.training)
            self.on_detach(replace(layer.module, layer.mlp, locked))
            self.on_detach(specialise(layer.module, PlannedLayer, {}, {"mlp_name": layer.mlp}))
        sequences = SequenceModes(self.resolver)
        self.on_detach(backbone.register_forward_pre_hook(sequences.before, with_kwargs=True).remove)
        self.on_detach(backbone.register_forward_hook(sequences.after, with_kwargs=True).remove)
        self.on_detach(carry_argument(model, ARGUMENT))
        self.on_detach(shadow(model, "generate", partial(generate, model, type(model), sequences)))

    def mlps(self) -> Iterator[tuple[int, PathLockedMLP]]:
        """Yield ``(layer index, path-locked MLP)``."""
        for layer in self.host.layers:
            yield layer.index, getattr(layer.module, str(layer.mlp))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        if self.config.train == "all":
            yield from self.host.model.named_parameters()
            return
        for index, locked in self.mlps():
            for name, parameter in locked.named_parameters():
                yield f"layers.{index}.mlp.{name}", parameter

    def conditional_parameters(self) -> Iterator[nn.Parameter]:
        """Every expert's: a batch without tokens of its mode leaves them without a gradient."""
        for _, locked in self.mlps():
            yield from locked.parameters()

    def neutral_arguments(self, rows: int) -> dict[str, Any]:
        return {ARGUMENT: torch.full((rows,), self.config.default_index)}

    def parameter_counts(self) -> dict[str, int]:
        """Return exact counts: ``dense`` the host's own, ``total`` with both experts, ``active`` per token, which is
        the host's again (appendix A.6, table 11)."""
        total = sum(parameter.numel() for parameter in self.host.model.parameters())
        expert = sum(parameter.numel() for _, locked in self.mlps() for parameter in locked.think.parameters())
        return {"dense": total - expert, "total": total, "active": total - expert}

    def plain_state(self, mode: int) -> dict[str, Tensor]:
        """Return the tensors of the plain host that runs one mode, by the host's own names, shared with this model."""
        kept, dropped = MODES[mode], MODES[1 - mode]
        names = {module: name for name, module in self.host.model.named_modules()}
        prefixes = [names[locked] for _, locked in self.mlps()]
        state = {}
        for name, tensor in self.host.model.state_dict().items():
            owner = next((prefix for prefix in prefixes if name.startswith(f"{prefix}.")), None)
            if owner is None:
                state[name] = tensor
            elif not name.startswith(f"{owner}.{dropped}."):
                state[f"{owner}.{name.removeprefix(f'{owner}.{kept}.')}"] = tensor
        return state

    def require_removable(self) -> None:
        """Refuse removal after training has changed tensors of the host, its MLPs as no_think experts included.

        Raises:
            HostError: a tensor is not what it was. There is no second copy of a whole model to restore it from.
        """
        changed_since(
            self._checksums,
            self.plain_state(MODES.index("no_think")),
            self.name,
            "Write a plain checkpoint of either mode with routelab.methods.pathlock.export.export, or "
            "`routelab export --mode think|no_think|both`",
        )

    def summary(self) -> Summary:
        names: Mapping[nn.Module, str] = {module: name for name, module in self.host.model.named_modules()}
        counts = self.parameter_counts()
        return Summary(
            method=self.name,
            layers=tuple(index for index, _ in self.mlps()),
            modules=tuple(names[locked] for _, locked in self.mlps()),
            new_parameters=counts["total"] - counts["dense"],
            trainable_parameters=sum(parameter.numel() for parameter in self.parameters()),
            details={**counts, "train": self.config.train, "scan": self.config.scan, "strict": self.config.strict},
        )
