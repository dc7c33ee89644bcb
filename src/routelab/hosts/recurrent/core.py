"""Attention of the recurrent core: the one place where a method reaches into the recurrence.

A forward of a depth-recurrent model runs the same blocks once per step. Everything that its steps share is a
:class:`CoreCall`; what each step does with its queries, keys and values is a :class:`CoreAttention`, which the model
holds as ``core_attention``. Prelude and coda attend on their own and never pass through it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from routelab.errors import HostError

#: Attention of one layer: rotated query, key and value in, output ``[B, H, S, d]`` out.
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class CoreCall:
    """What all steps of one forward share. S query slots are the last of K key slots.

    Attributes:
        num_steps: T, the steps asked for.
        query_length: S.
        key_length: K, cached slots + S; of a preallocated cache only the slots in use.
        key_mask: ``[B, K]`` bool, True where a slot holds a real token; None where all do.
        cached: the cache held something before this call, so S < K.
        row_key: the cache (or None): calls with the same one belong to the same generation.
    """

    num_steps: int
    query_length: int
    key_length: int
    key_mask: Tensor | None
    cached: bool
    row_key: object

    @cached_property
    def full_attention(self) -> CausalAttention:
        """Causal attention over all real slots, shared by every layer of the call."""
        return CausalAttention(self.query_length, self.key_length, self.key_mask)


class CausalAttention:
    """Causal attention of one call by SDPA; the mask it may need is built once, at its first use.

    No mask is built where none is needed: all slots are queries and padding, if any, stands at the end of its row
    (SDPA's own causality then keeps real queries from it), or the only query may see everything.
    """

    def __init__(self, query_length: int, key_length: int, key_mask: Tensor | None) -> None:
        self.query_length, self.key_length, self.key_mask = query_length, key_length, key_mask
        square = query_length == key_length
        self.is_causal = square and (key_mask is None or _ends_padded(key_mask))
        self.unmasked = self.is_causal or (key_mask is None and query_length == 1)
        self._mask: Tensor | None = None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """``query [B, H, S, d]``, ``key`` and ``value [B, Hkv, K, d]`` to ``[B, H, S, d]``, in the query's dtype."""
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if self.unmasked else self._build(query.device),
            is_causal=self.is_causal,
            enable_gqa=query.shape[1] != key.shape[1],
        )

    def _build(self, device: torch.device) -> Tensor:
        """Return the mask ``[B or 1, 1, S, K]``: real slots up to the query's own, which a padded query sees alone."""
        if self._mask is None:
            slots = torch.arange(self.key_length, device=device)
            queries = slots[-self.query_length :, None]
            mask = (slots <= queries)[None, None]
            if self.key_mask is not None:
                mask = mask & self.key_mask[:, None, None] | (slots == queries)
            self._mask = mask
        return self._mask


def _ends_padded(key_mask: Tensor) -> bool:
    """Whether no real token follows a padded slot in any row."""
    return bool((key_mask[:, :-1] >= key_mask[:, 1:]).all())


class CoreAttention(ABC):
    """Attention of the recurrent core: :meth:`begin`, then :meth:`attend` per step and block, then :meth:`end`.

    Rows may be padded on either side (``key_mask`` says where); what a padded query gets is unspecified but finite.
    Under gradient checkpointing the backward pass runs steps again, last step first: then :meth:`begin` comes again
    with the same call, and no :meth:`end`.
    """

    @abstractmethod
    def begin(self, call: CoreCall) -> int:
        """Start one forward; return the number of steps to run, in ``1 … call.num_steps``."""

    @abstractmethod
    def attend(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attention output ``[B, H, S, d]`` of one core block at one step (1 … T).

        ``query [B, H, S, d]`` and ``key [B, Hkv, K, d]`` carry their rotation; ``key`` and ``value [B, Hkv, K, d]``
        include what was cached for this step and block.
        """

    @abstractmethod
    def end(self) -> None:
        """Finish the forward: its last step has run."""


class FullCoreAttention(CoreAttention):
    """Every query attends to every real slot up to its own, at every step."""

    def __init__(self) -> None:
        self._attention: CausalAttention | None = None

    def begin(self, call: CoreCall) -> int:
        self._attention = call.full_attention
        return call.num_steps

    def attend(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self._attention is None:
            raise HostError("attend was called before begin")
        return self._attention(query, key, value)

    def end(self) -> None:
        self._attention = None
