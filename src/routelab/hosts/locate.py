"""Find the parts of a model by role: decoder layers, attention, router, experts.

Everything that differs between the supported families is one row of :data:`FAMILIES`; the rest of the library asks
for roles and never for module paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import nn

from routelab.errors import HostError, closest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    class Router(nn.Module):
        """What the router classes of all families have in common."""

        weight: nn.Parameter
        top_k: int
        hidden_dim: int
        norm_topk_prob: bool


@dataclass(frozen=True)
class Family:
    """What has to be known about one family of mixture-of-experts decoders.

    ``renormalises``: whether the top-k weights are divided by their sum (``None``: the router's ``norm_topk_prob``
    says). ``float32_weights``: the weights stay in float32 instead of returning to the dtype of the hidden states.
    ``packing``: documents packed in one row can be kept apart (linear-attention layers cannot do that).
    """

    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    attention: str = "self_attn"
    num_experts: str = "num_experts"
    renormalises: bool | None = None
    float32_weights: bool = False
    packing: bool = True


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "olmoe": Family(),
        "qwen2_moe": Family(),
        "qwen3_moe": Family(),
        "qwen3_5_moe_text": Family(renormalises=True, packing=False),
        "mixtral": Family(num_experts="num_local_experts", renormalises=True, float32_weights=True),
    }
)


@dataclass(frozen=True)
class Layer:
    """One decoder layer. ``attention`` is None where the layer mixes tokens without a softmax; ``router`` and
    ``experts`` are None where its MLP is dense. ``mlp`` is the name of the dense MLP, in hosts located as dense."""

    index: int
    module: nn.Module
    attention: nn.Module | None
    router: Router | None
    experts: nn.Module | None
    mlp: str | None = None


@dataclass(frozen=True)
class Host:
    """A located model: ``layers`` by index, and the numbers that its routers share."""

    model: PreTrainedModel
    backbone: PreTrainedModel
    model_type: str
    family: Family
    layers: tuple[Layer, ...]
    hidden_size: int
    num_experts: int
    top_k: int
    renormalises: bool

    @property
    def routed(self) -> tuple[Layer, ...]:
        """The layers that have a router."""
        return tuple(layer for layer in self.layers if layer.router is not None)

    @property
    def routers(self) -> dict[int, Router]:
        """The routers by layer index."""
        return {layer.index: layer.router for layer in self.layers if layer.router is not None}

    def fingerprint(self) -> dict[str, int | str]:
        """The numbers that a saved routing depends on; two hosts with equal ones fit the same file."""
        return {
            "model_type": self.model_type,
            "layers": len(self.layers),
            "hidden_size": self.hidden_size,
            "experts": self.num_experts,
            "top_k": self.top_k,
        }


def _part(module: nn.Module, path: str) -> Any:
    """Return the submodule at a dotted ``path``, or None where a step of the path does not exist."""
    for name in path.split("."):
        found = getattr(module, name, None)
        if not isinstance(found, nn.Module):
            return None
        module = found
    return module


def _family(model_type: str, mixture: bool) -> Family:
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    if model_type == "qwen3_5_moe":
        raise HostError(
            "'qwen3_5_moe' is the vision-language composite; load its language model with "
            "AutoModelForCausalLM (model_type 'qwen3_5_moe_text')"
        )
    reason = "is not a supported family" if mixture else "has no router: its MLPs are dense"
    raise HostError(f"host family {model_type!r} {reason}{closest(model_type, FAMILIES)}")


def model_type_of(model: PreTrainedModel) -> str:
    """Return the model type, or raise :class:`HostError` for something that is not a transformers model."""
    model_type: str | None = getattr(getattr(model, "config", None), "model_type", None)
    if model_type is None:
        raise HostError(f"{type(model).__name__} is not a transformers model: it has no config.model_type")
    return model_type


def has_experts(config: Any) -> bool:
    """Whether a configuration is that of a mixture of experts."""
    return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))


def backbone_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the stack of decoder layers under the head, or raise :class:`HostError` where there is none."""
    backbone = model.base_model
    if backbone is model or not isinstance(getattr(backbone, "layers", None), nn.ModuleList):
        raise HostError(f"{type(model).__name__} has no language-model head over decoder layers; load a ...ForCausalLM")
    return backbone


def locate(model: PreTrainedModel) -> Host:
    """Return the parts of a mixture-of-experts causal language model by role.

    Raises:
        HostError: the model is not a transformers causal language model, its family is unknown or dense, or a layer
            lacks a part that its family should have. The message lists the supported families.
    """
    model_type = model_type_of(model)
    config: Any = model.config
    family = _family(model_type, has_experts(config))
    backbone = backbone_of(model)
    layers = []
    for index, module in enumerate(backbone.layers):
        router, experts = _part(module, family.router), _part(module, family.experts)
        if (router is None) != (experts is None):
            raise HostError(f"layer {index} of this {model_type!r} host has only one of router and experts")
        layers.append(Layer(index, module, _part(module, family.attention), router, experts))

    first = next((layer.router for layer in layers if layer.router is not None), None)
    if first is None:
        raise HostError(f"no layer of this {model_type!r} host has a router: all its MLPs are dense")
    renormalises = family.renormalises
    return Host(
        model=model,
        backbone=backbone,
        model_type=model_type,
        family=family,
        layers=tuple(layers),
        hidden_size=config.hidden_size,
        num_experts=getattr(config, family.num_experts),
        top_k=first.top_k,
        renormalises=first.norm_topk_prob if renormalises is None else renormalises,
    )
