"""What a training costs, estimated from the host's shapes: floating-point operations, and hours on two GPUs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import nn

from routelab.hosts.locate import FAMILIES, locate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Dense bfloat16 operations a second, from the makers' data sheets.
PEAK = MappingProxyType({"A100": 312e12, "H100": 989e12})
#: The share of them that a training is taken to reach. Small batches and eager experts reach less, dense hosts more.
UTILISATION = 0.3


def active_parameters(model: PreTrainedModel, only: Collection[int] | None = None) -> float:
    """Return how many parameters a token is multiplied with: of the experts, the share that is chosen; of an embedding
    that is only looked up, none.

    Args:
        only: count these parameters alone, by ``id``.
    """

    def size(parameters: Iterable[nn.Parameter]) -> int:
        return sum(parameter.numel() for parameter in parameters if only is None or id(parameter) in only)

    count: float = size(model.parameters())
    if not model.config.tie_word_embeddings:
        count -= size(model.get_input_embeddings().parameters())
    if model.config.model_type in FAMILIES:
        host = locate(model)
        idle = 1 - host.top_k / host.num_experts
        count -= sum(idle * size(layer.experts.parameters()) for layer in host.layers if layer.experts is not None)
    return count


def flops_per_token(model: PreTrainedModel, *, trained: float, length: int, recomputed: bool) -> float:
    """Return the operations of one training step per token.

    Two per active parameter forward, two backward for the gradients of the activations, which pass through frozen
    weights too, and two for the gradient of every ``trained`` one; two more forward where layers are recomputed.
    Attention adds ``2 · layers · heads · head size · length`` forward, causal, and twice that backward; layers without
    a softmax add nothing.
    """
    weights, attention = 2 * active_parameters(model), 2 * _attention_width(model) * length
    forwards = 2 if recomputed else 1
    return forwards * (weights + attention) + weights + 2 * attention + 2 * trained


def _attention_width(model: PreTrainedModel) -> int:
    """Return heads times head size, summed over the layers that attend with a softmax."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    layers = sum(kind != "linear_attention" for kind in kinds)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(layers * config.num_attention_heads * size)


def hours(flops: float) -> str:
    """Return the time that so many operations take on one GPU of each kind, in words."""
    return ", ".join(f"{_time(flops / (peak * UTILISATION) / 3600)} {gpu}" for gpu, peak in PEAK.items())


def _time(value: float) -> str:
    if value < 0.1:
        return f"{value * 60:.1f} min" if value * 60 >= 0.1 else "under 0.1 min"
    return f"{value:.1f} h" if value < 100 else f"{value:,.0f} h"
