"""A cache layer that appends in place. transformers' own copies all keys and values at every token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

_ROOM = 64


class GrowingLayer(DynamicLayer):
    """Keys and values of full attention in buffers with room for the next tokens; what it returns are views of them."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append ``[batch, heads, new, d]`` and return all keys and values."""
        held = self.keys.shape[-2]
        length = held + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < length:
            self._buffers = (_with_room(self.keys, length), _with_room(self.values, length))
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., held:length, :] = new
        self.keys, self.values = (buffer[..., :length, :] for buffer in self._buffers)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Keep the rows ``beam_idx``."""
        super().reorder_cache(beam_idx)
        self._buffers = None


def grow_in_place(cache: Any) -> None:
    """Replace the plain layers of ``cache`` by growing ones; layers of any other kind stay."""
    layers = getattr(cache, "layers", [])
    for i, layer in enumerate(layers):
        if type(layer) is DynamicLayer and layer.is_initialized:
            layers[i] = GrowingLayer(layer.keys, layer.values)


def plain_layers(cache: Any) -> tuple[tuple[Tensor, Tensor], ...] | None:
    """Return keys and values of every layer, or None for a cache that holds anything else."""
    layers = getattr(cache, "layers", [])
    if not layers or any(type(layer) is not DynamicLayer for layer in layers):
        return None
    return tuple((layer.keys, layer.values) for layer in layers)


def _with_room(tensor: Tensor, length: int) -> Tensor:
    buffer = tensor.new_empty(*tensor.shape[:-2], length + _ROOM, tensor.shape[-1])
    buffer[..., : tensor.shape[-2], :] = tensor
    return buffer
