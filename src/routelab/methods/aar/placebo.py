"""Windows with the parameters of AAR but without its information: the placebo arms."""

from __future__ import annotations

import torch
from torch import Tensor

#: Tokens whose positions differ by a multiple of this share one shuffled order.
ORDERS = 1024


def constant_window(window: Tensor) -> Tensor:
    """Return the same window for every token: ``1/M`` everywhere."""
    return torch.full_like(window, 1 / window.shape[-1])


def shuffle_orders(size: int, seed: int) -> Tensor:
    """Return ``[ORDERS, size]``: one fixed random order of the window per position."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(ORDERS, size, generator=generator).argsort(dim=-1)


def shuffled_window(window: Tensor, positions: Tensor, orders: Tensor) -> Tensor:
    """Return each token's weights in the order that belongs to its position.

    The order depends on nothing but the position, so decoding with a cache equals prefill, and a left-padded batch
    equals each of its rows alone where its position ids do (``generate`` and this library's evaluation pass them).

    Args:
        window: ``[B, n, M]``.
        positions: ``[B or 1, n]``, the host's position ids.
        orders: from :func:`shuffle_orders`.
    """
    order = orders.to(window.device)[positions % ORDERS]
    return window.gather(-1, order.expand_as(window))
