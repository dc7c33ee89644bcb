"""Inputs and masks of the window operator's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Every uninitialised tensor is NaN, so that whatever reads one shows it."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture
def inputs() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """``(batch, heads, groups, q, k, d)`` to query, key, value in the layout of transformers (heads inside)."""

    def build(
        batch: int, heads: int, groups: int, q: int, k: int, d: int, dtype: torch.dtype = torch.float64, seed: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        shapes = [(batch, q, heads, d), (batch, k, groups, d), (batch, k, groups, d)]
        query, key, value = (torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    return build


@pytest.fixture
def make_mask() -> Callable[..., Tensor | None]:
    """``(kind, batch, q, k)`` to a mask of that kind."""

    def build(kind: str, batch: int, q: int, k: int, seed: int = 0) -> Tensor | None:
        generator = torch.Generator().manual_seed(seed)
        columns = torch.arange(k)
        causal = columns[None] <= torch.arange(k - q, k)[:, None]
        mask = causal.expand(batch, 1, q, k).clone()
        rows = torch.arange(batch)[:, None, None, None]
        if kind == "none":
            return None
        if kind == "left":
            return mask & (columns >= rows * (k // 3))
        if kind == "right":
            return mask & (columns < k - rows * (k // 3))
        if kind == "packed":
            document = torch.randint(0, 3, (batch, k), generator=generator).sort(-1).values
            return mask & (document[:, None, -q:, None] == document[:, None, None])
        if kind == "static":  # upper-left: the cache is longer than what has been written
            return (columns[None] <= torch.arange(q)[:, None])[None, None]
        if kind == "static-step":  # one row per query at a position of its own in the middle of the cache
            return (columns[None] <= torch.arange(q)[:, None] + k // 2)[None, None]
        assert kind == "random"
        return torch.rand(batch, 1, q, k, generator=generator) > 0.6

    return build
