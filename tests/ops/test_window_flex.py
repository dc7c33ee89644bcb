"""The FlexAttention form against the reference, through FlexAttention's own unfused definition on the CPU.

The fused kernel needs a GPU; what is checked here is everything around it: masks, slots, the band, and the gradient
through the log-sum-exp that FlexAttention defines.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from routelab.ops.window_flex import window_attention_flex
from routelab.ops.window_reference import window_attention_reference


@pytest.fixture(autouse=True)
def unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention refuses gradients on the CPU before it reaches its (working) unfused definition."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)


def masks(queries: int, keys: int) -> dict[str, Tensor | None]:
    causal = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    padded = causal.expand(2, 1, queries, keys).clone()
    padded[1, :, :, :2] = False
    early = torch.ones(queries, keys, dtype=torch.bool).tril()[None, None]
    return {"causal": None, "left padding": padded, "upper left": early}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("case", "queries", "include_self"),
    [
        ("causal", 9, True),
        ("causal", 5, False),
        ("causal", 1, True),
        ("left padding", 9, True),
        ("upper left", 5, True),
    ],
)
def test_values_and_gradients(case: str, queries: int, include_self: bool) -> None:
    keys = 9
    mask = masks(queries, keys)[case]
    torch.manual_seed(0)
    inputs = [torch.randn(2, heads, length, 16) for heads, length in ((4, queries), (2, keys), (2, keys))]
    down, beside = torch.randn(2, 4, queries, 16), torch.randn(2, queries, 4)
    results = []
    for run, dtype in ((window_attention_flex, torch.float32), (window_attention_reference, torch.float64)):
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        output, window = run(*leaves, 4, mask=mask, scale=0.3, include_self=include_self)
        ((output * down).sum() + (window * beside).sum()).backward()
        results.append([output, window, *(leaf.grad for leaf in leaves)])
    for own, reference in zip(*results, strict=True):
        torch.testing.assert_close(own, reference.float(), atol=2e-5, rtol=2e-5)
