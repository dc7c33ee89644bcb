"""Key-value cache of a depth-recurrent model: prelude, coda, and one slot per (step, core block)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from routelab.errors import HostError
from routelab.hosts.recurrent.core import Attend


class RecurrentCache(Cache):
    """What a generation has seen. The keys of a token differ from step to step, so every step keeps its own.

    Slots: the prelude's blocks, the coda's, then the core's, step by step.

    The first forward fixes ``num_steps``; a later one with another number would find keys of the wrong depth, and is
    refused. ``max_length`` preallocates that many slots per layer; without it the layers grow.
    """

    def __init__(self, *, max_length: int | None = None) -> None:
        layer = DynamicLayer if max_length is None else partial(PreallocatedLayer, max_length)
        super().__init__(layer_class_to_replicate=layer)
        self.num_steps: int | None = None
        self.padded = False

    def require_steps(self, num_steps: int) -> None:
        """Fix the number of steps, or raise ``HostError`` where it was fixed to another."""
        if self.num_steps is None:
            self.num_steps = num_steps
        if self.num_steps != num_steps:
            raise HostError(
                f"this cache was made with num_steps={self.num_steps} and is now asked for {num_steps}: the keys of "
                "every step are its own; use the same number, or a new cache"
            )

    def reset(self) -> None:
        super().reset()
        self.num_steps, self.padded = None, False


def through(cache: RecurrentCache | None, slot: int, attend: Attend) -> Attend:
    """Return ``attend`` with keys and values that first pass through ``slot`` of the cache, where there is one."""
    return attend if cache is None else partial(_attend_cached, cache, slot, attend)


def _attend_cached(
    cache: RecurrentCache, slot: int, attend: Attend, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    return attend(query, *cache.update(key, value, slot))


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values ``[B, heads, max_length, d]``, allocated at once, filled in place; only used slots show."""

    is_croppable = True

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length, self.length = max_length, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.device = key_states.device
        self.keys, self.values = (
            states.new_zeros((*states.shape[:2], self.max_length, states.shape[-1]))
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append and return the slots in use.

        Raises:
            HostError: the cache is full, or holds another number of rows.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if len(key_states) != len(self.keys):
            raise HostError(f"a cache of {len(self.keys)} rows was given {len(key_states)}")
        end = self.length + key_states.shape[-2]
        if end > self.max_length:
            raise HostError(f"a cache of {self.max_length} slots cannot hold {end} tokens")
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.max_length

    def reset(self) -> None:
        self.is_initialized, self.length = False, 0  # the next update allocates anew, for its own rows

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens (negative, as everywhere in transformers' caches)."""
        if tokens_to_remove > 0:
            raise HostError(f"crop takes minus the number of tokens to remove, not {tokens_to_remove}")
        self.length = max(self.length + tokens_to_remove, 0)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.is_initialized:
            self.keys = self.keys.repeat_interleave(repeats, dim=0)
            self.values = self.values.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.is_initialized:
            self.keys, self.values = self.keys[indices], self.values[indices]
