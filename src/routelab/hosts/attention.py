"""Attention that also hands out a window of its weights, registered with transformers under one name.

transformers looks an attention function and a mask function up by the same name. A name without a mask function
silently gets *no* mask, so :func:`use_window_attention` always registers both. The attention function serves every
layer of the model; only layers that carry a :class:`WindowRecord` pay for the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from routelab.errors import HostError
from routelab.ops.window import window_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "routelab_window"
_RECORD = "routelab_window_record"


@dataclass
class WindowRecord:
    """Where a layer's attention leaves the window that its router reads.

    Owned by a method, never global. The attention function overwrites ``window`` (``[batch, queries, size]``,
    float32) and ``positions`` (``[batch or 1, queries]`` or None) in every forward, a recomputation under gradient
    checkpointing included.
    """

    size: int
    include_self: bool = True
    window: Tensor | None = None
    positions: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> WindowRecord:
        # The tensors belong to one forward's graph: a copy starts empty, which deepcopy of graph tensors could not do.
        copy = WindowRecord(self.size, self.include_self)
        memo[id(self)] = copy
        return copy

    def read(self, tokens: int) -> Tensor:
        """Return the window as ``[tokens, size]``.

        Raises:
            HostError: no attention has written for these tokens, so a router was called without its layer.
        """
        if self.window is None or self.window.shape[0] * self.window.shape[1] != tokens:
            held = "nothing" if self.window is None else f"a window of shape {tuple(self.window.shape)}"
            raise HostError(
                f"a router asked for the attention window of {tokens} tokens, but its layer left {held}. If the "
                "attention implementation was changed, set it back with "
                f"model.set_attn_implementation({NAME!r}), or detach first"
            )
        return self.window.reshape(tokens, self.size)


def window_mask(
    *, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0, **kwargs: Any
) -> Tensor | None:
    """Mask function of this attention: a boolean mask ``[batch, 1, q, k]``, or None where causality alone is meant.

    None is returned only where the queries are the last of the keys: for the square case and for a single query. A
    static cache whose end is still empty gets an explicit mask, since neither the attention function nor SDPA could
    tell where its queries stand.
    """
    skip = kwargs.pop("allow_is_causal_skip", True) and q_length in (1, kv_length)
    if skip:
        tracing = isinstance(q_offset, Tensor) and torch.compiler.is_compiling()
        skip = not tracing and int(q_offset) + q_length == kv_length + kv_offset
    return sdpa_mask(
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        allow_is_causal_skip=skip,
        **kwargs,
    )


def window_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function of this name: SDPA where the layer has no record, window attention where it has one.

    Shapes as transformers has them: ``query [batch, heads, q, d]``, ``key`` and ``value [batch, kv heads, k, d]``;
    returns ``([batch, q, heads, d], None)``.
    """
    record: WindowRecord | None = getattr(module, _RECORD, None)
    if record is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    if dropout:
        raise HostError(f"attention dropout {dropout} is not supported where a router reads the attention weights")
    output, record.window = window_attention(
        query, key, value, record.size, mask=attention_mask, scale=scaling, include_self=record.include_self
    )
    record.positions = kwargs.get("position_ids")
    return output.transpose(1, 2), None


def use_window_attention(model: PreTrainedModel) -> Callable[[], None]:
    """Switch ``model`` to this attention and return a function that restores what it had.

    Raises:
        HostError: the model's attention cannot be replaced by name.
    """
    AttentionInterface.register(NAME, window_attention_forward)
    AttentionMaskInterface.register(NAME, window_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise HostError(f"{type(model).__name__} does not let its attention be replaced by name")
    return partial(model.set_attn_implementation, before)


def place_record(attention: nn.Module, record: WindowRecord) -> Callable[[], None]:
    """Let ``attention`` write into ``record``; return a function that takes it away.

    Every call of the module empties the record first: if another attention function serves it, its router finds
    nothing instead of the window of an earlier call.
    """
    setattr(attention, _RECORD, record)
    hook = attention.register_forward_pre_hook(partial(_empty, record))
    return partial(_take_away, attention, hook)


def _empty(record: WindowRecord, attention: nn.Module, args: tuple[Any, ...]) -> None:
    record.window = record.positions = None


def _take_away(attention: nn.Module, hook: RemovableHandle) -> None:
    hook.remove()
    delattr(attention, _RECORD)
