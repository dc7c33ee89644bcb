"""Find the MLPs of a dense decoder of any family, by the roles of their projections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from routelab.errors import HostError
from routelab.hosts.locate import Family, Host, Layer, backbone_of, has_experts, model_type_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: What the projections of an MLP are called; a decoder layer's MLP is its one child that has all names of a row.
MLP_ROLES: tuple[tuple[str, ...], ...] = (
    ("gate_proj", "up_proj", "down_proj"),
    ("gate_up_proj", "down_proj"),
    ("fc1", "fc2"),
    ("c_fc", "c_proj"),
    ("dense_h_to_4h", "dense_4h_to_h"),
)


def mlp_name(layer: nn.Module) -> str | None:
    """Return the name of a decoder layer's dense MLP, or None where no child, or more than one, has such roles."""
    found = [
        name
        for name, child in layer.named_children()
        if any(all(isinstance(getattr(child, role, None), nn.Module) for role in roles) for roles in MLP_ROLES)
    ]
    return found[0] if len(found) == 1 else None


def locate_dense(model: PreTrainedModel) -> Host:
    """Return the parts of a dense causal language model: its decoder layers, each with the name of its MLP.

    The family does not matter, only that every layer has exactly one MLP of the usual roles (:data:`MLP_ROLES`) and
    takes keyword arguments from the backbone, as all current decoders of transformers do.

    Raises:
        HostError: not a causal language model over decoder layers, a mixture of experts, a layer without such an MLP,
            or layers that take no keyword arguments.
    """
    model_type = model_type_of(model)
    if has_experts(model.config):
        raise HostError(f"{model_type!r} is a mixture of experts; this method works on hosts whose MLPs are dense")
    backbone = backbone_of(model)
    layers = []
    for index, module in enumerate(_modules(backbone)):
        name = mlp_name(module)
        if name is None:
            raise HostError(
                f"layer {index} of this {model_type!r} host ({type(module).__name__}) has no MLP of a known role among "
                f"its children {[child for child, _ in module.named_children()]}; known: "
                f"{'; '.join(' + '.join(roles) for roles in MLP_ROLES)}"
            )
        layers.append(Layer(index, module, getattr(module, "self_attn", None), None, None, mlp=name))
    linear = "linear_attention" in (getattr(model.config, "layer_types", None) or ())
    return Host(
        model=model,
        backbone=backbone,
        model_type=model_type,
        family=Family(packing=not linear),
        layers=tuple(layers),
        hidden_size=model.config.hidden_size,
        num_experts=0,
        top_k=0,
        renormalises=False,
    )


def _modules(backbone: PreTrainedModel) -> Sequence[nn.Module]:
    layers: nn.ModuleList = backbone.layers
    if not len(layers):
        raise HostError(f"{type(backbone).__name__} has no decoder layers")
    return list(layers)
