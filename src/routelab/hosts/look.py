"""Let something look into the attention of a model, or change its routing, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from routelab.errors import HostError, LayerError
from routelab.hosts.attention import window_attention_forward, window_mask
from routelab.hosts.locate import Host, locate
from routelab.hosts.routing import select_experts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "routelab_look"


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """What one softmax attention works on: ``query [B, H, q, d]``, ``key`` and ``value [B, G, k, d]``, ``mask`` bool
    ``[B or 1, 1, q, k]`` (True: may attend) or None where it is causal, and the ``scale`` of the scores."""

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float


@contextmanager
def looking_at_attention(model: PreTrainedModel, look: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Call ``look`` at every softmax attention of every forward inside the block; the model computes what it did.

    Layers without softmax attention are not seen.
    """

    def forward(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        scale = kwargs.get("scaling")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        look(AttentionCall(int(module.layer_idx), query, key, value, attention_mask, scale))  # type: ignore[arg-type]
        return window_attention_forward(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register(_NAME, forward)
    AttentionMaskInterface.register(_NAME, window_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(_NAME)
    if model.config._attn_implementation != _NAME:
        raise HostError(f"{type(model).__name__} does not let its attention be looked at: it is not replaced by name")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def patched_routing(model: PreTrainedModel, logits: Mapping[int, Tensor]) -> Iterator[None]:
    """Let some layers route by given raw router logits ``[tokens, experts]`` instead of their own.

    Everything after the logits is the host's: softmax, top-k, renormalisation, dtype of the weights.

    Raises:
        LayerError: a layer has no router. HostError: a forward of another number of tokens.
    """
    host = locate(model)
    unknown = sorted(set(logits) - set(host.routers))
    if unknown:
        raise LayerError(f"layers {unknown} have no router to patch; layers that have one: {sorted(host.routers)}")
    handles = [
        host.routers[layer].register_forward_hook(partial(_answer, host, given)) for layer, given in logits.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _answer(
    host: Host, logits: Tensor, router: nn.Module, inputs: Any, output: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    if output[0].shape != logits.shape:
        raise HostError(
            f"patched router logits have shape {tuple(logits.shape)}, this forward needs {tuple(output[0].shape)}"
        )
    dtype = torch.float32 if host.family.float32_weights else output[1].dtype
    given = logits.to(output[0].device)
    return select_experts(given, top_k=host.top_k, renormalise=host.renormalises, dtype=dtype)
