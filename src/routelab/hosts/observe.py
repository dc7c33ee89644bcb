"""Look into a model while it runs, without changing what it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from routelab.hosts.attention import window_attention_forward, window_mask
from routelab.ops.window import window_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "routelab_first_token_mass"


@contextmanager
def first_token_mass(model: PreTrainedModel) -> Iterator[dict[int, Tensor]]:
    """Collect, per layer, the attention weight that each token gives to the first token.

    Inside the block, every forward of one unpadded sequence of n tokens without a cache fills the yielded dictionary:
    layer index → ``[n]`` float32, the mean over heads. Layers without softmax attention do not appear. A window as
    long as the sequence holds the weight of position 0 at ``n - 1 - i`` for token ``i``.
    """
    found: dict[int, Tensor] = {}

    def forward(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        tokens = query.shape[2]
        _, window = window_attention(query, key, value, tokens, mask=attention_mask, scale=kwargs.get("scaling"))
        found[int(module.layer_idx)] = window[0].flip(-1).diagonal().detach()  # type: ignore[arg-type]
        return window_attention_forward(module, query, key, value, attention_mask, **kwargs)

    AttentionInterface.register(_NAME, forward)
    AttentionMaskInterface.register(_NAME, window_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(_NAME)
    try:
        yield found
    finally:
        model.set_attn_implementation(before)
