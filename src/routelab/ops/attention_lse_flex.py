"""Causal attention with its row log-sum-exp on FlexAttention: the form for GPUs."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention


def attention_lse_flex(query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """Same arguments and results as :func:`routelab.ops.attention_lse.attention_lse`."""
    attend = _compiled() if query.device.type == "cuda" else flex_attention
    output, aux = attend(
        query,
        key,
        value,
        block_mask=_causal(query.shape[2], key.shape[2], query.device),
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
        return_aux=AuxRequest(lse=True),
    )
    return output, aux.lse


@cache
def _compiled() -> Any:
    """The fused kernel; without compilation FlexAttention would materialise attention."""
    return torch.compile(flex_attention, dynamic=True)


def _causal(queries: int, keys: int, device: torch.device) -> BlockMask:
    offset = keys - queries

    def causal(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i + offset

    return create_block_mask(causal, None, None, queries, keys, device=str(device))
