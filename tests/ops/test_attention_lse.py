"""Causal attention with its log-sum-exp: values, bits, gradient; and its errors."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from routelab.errors import BackendError, ConfigError
from routelab.ops.attention_lse import attention_lse
from routelab.ops.attention_lse_flex import attention_lse_flex

SIZES = [
    pytest.param(2, 4, 2, 50, 50, 16, id="square, grouped"),
    pytest.param(1, 2, 1, 37, 70, 96, id="q shorter than k"),
    pytest.param(3, 2, 2, 1, 41, 8, id="one query"),
    pytest.param(2, 2, 2, 1, 1, 8, id="one token"),
]


@pytest.mark.parametrize(("batch", "heads", "groups", "q", "k", "d"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_flash_equals_reference(inputs, batch, heads, groups, q, k, d, dtype):
    tensors = inputs(batch, heads, groups, q, k, d, dtype)
    output, lse = attention_lse(*tensors, scale=0.3)
    expected, exact = attention_lse(*(x.double() for x in tensors), scale=0.3, backend="reference")
    assert output.dtype == dtype
    assert lse.dtype == torch.promote_types(dtype, torch.float32)
    # Scores reach 30, so float32 has them, and with them the weights, to 4e-6. For 16-bit inputs the kernel sums
    # probabilities in their precision.
    budget = {torch.float64: (1e-14, 1e-14), torch.float32: (6e-6, 6e-6)}.get(dtype, (4 * torch.finfo(dtype).eps, 3e-3))
    assert (output - expected).abs().max() <= budget[0]
    assert (lse - exact).abs().max() <= budget[1]


def test_reference_is_the_definition(inputs):
    query, key, value = inputs(1, 2, 1, 3, 5, 4)
    output, lse = attention_lse(query, key, value, scale=0.7, backend="reference")
    for h in range(2):
        for i in range(3):
            weights = torch.stack([0.7 * query[0, h, i] @ key[0, 0, j] for j in range(3 + i)]).exp()
            torch.testing.assert_close(lse[0, h, i], weights.sum().log())
            torch.testing.assert_close(output[0, h, i], weights @ value[0, 0, : 3 + i] / weights.sum())


@pytest.mark.parametrize("groups", [4, 2])
def test_output_has_the_bits_of_sdpa(inputs, groups):
    """So that discovery steps change nothing."""
    tensors = inputs(2, 4, groups, 130, 130, 24, torch.float32)
    plain = scaled_dot_product_attention(*tensors, is_causal=True, enable_gqa=groups != 4)
    assert torch.equal(attention_lse(*tensors)[0], plain)


def test_padding_behind_a_row_changes_nothing(inputs):
    query, key, value = inputs(2, 2, 2, 20, 20, 8, torch.float32)
    lengths = torch.tensor([20, 13])
    output, lse = attention_lse(query, key, value, lengths=lengths)
    alone, lse_alone = attention_lse(*(x[1:, :, :13] for x in (query, key, value)))
    torch.testing.assert_close(output[1:, :, :13], alone, atol=1e-6, rtol=0.0)
    torch.testing.assert_close(lse[1:, :, :13], lse_alone, atol=1e-6, rtol=0.0)
    assert output.isfinite().all()


@pytest.mark.parametrize("q", [12, 7])
def test_gradient_of_the_output(inputs, q):
    tensors = [x.requires_grad_() for x in inputs(1, 2, 1, q, 12, 4)]
    output, lse = attention_lse(*tensors)
    assert not lse.requires_grad
    own = torch.autograd.grad(output.square().sum(), tensors)
    expected = torch.autograd.grad(attention_lse(*tensors, backend="reference")[0].square().sum(), tensors)
    torch.testing.assert_close(own, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_equals_reference(inputs, monkeypatch):
    """FlexAttention's own unfused definition: what is checked is the mask, the scale and the heads."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    tensors = inputs(2, 4, 2, 9, 14, 16, torch.float32)
    for own, exact in zip(
        attention_lse_flex(*tensors, scale=0.3),
        attention_lse(*(x.double() for x in tensors), scale=0.3, backend="reference"),
        strict=True,
    ):
        torch.testing.assert_close(own, exact.float(), atol=2e-6, rtol=2e-6)


def test_bad_input_is_named(inputs):
    tensors = inputs(1, 2, 2, 4, 4, 8)
    with pytest.raises(BackendError, match="did you mean 'flash'"):
        attention_lse(*tensors, backend="flush")
    with pytest.raises(BackendError, match="does not run on cpu; choose 'flash' or 'reference'"):
        attention_lse(*tensors, backend="flex")
    with pytest.raises(ConfigError, match="scale must be"):
        attention_lse(*tensors, scale=float("nan"))
    with pytest.raises(ConfigError, match="of one shape"):
        attention_lse(tensors[0], tensors[1], tensors[2][:, :, :3])
