"""The parts of a depth-recurrent host, by role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelab.errors import HostError
from routelab.hosts.locate import Family, Host, Layer, model_type_of
from routelab.hosts.recurrent.layers import PreNormBlock, SandwichBlock
from routelab.hosts.recurrent.model import RecurrentForCausalLM

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def locate_recurrent(model: PreTrainedModel) -> Host:
    """Return a depth-recurrent host whose layers are the blocks of its core.

    Raises:
        HostError: the model has no recurrent core.
    """
    model_type = model_type_of(model)
    if not isinstance(model, RecurrentForCausalLM):
        raise HostError(
            f"{model_type!r} is no depth-recurrent host; known: {RecurrentForCausalLM.config_class.model_type} "
            "(Huginn, Recurrent-Llama), loaded with routelab.load_host or RecurrentForCausalLM.from_pretrained"
        )
    layers = []
    for index, block in enumerate(model.transformer.core_block):
        assert isinstance(block, SandwichBlock | PreNormBlock)
        layers.append(Layer(index, block, block.attn, None, None, mlp="mlp"))
    return Host(
        model=model,
        backbone=model.transformer,
        model_type=model_type,
        family=Family(packing=False),
        layers=tuple(layers),
        hidden_size=model.config.hidden_size,
        num_experts=0,
        top_k=0,
        renormalises=False,
    )
