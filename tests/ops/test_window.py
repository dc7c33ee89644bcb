"""Values of the window operator: the definition in loops, the reference, the flash form; and its errors."""

from __future__ import annotations

import math

import pytest
import torch

from routelab.errors import BackendError, ConfigError
from routelab.ops.window import window_attention
from routelab.ops.window_band import TILE_ROWS, last_slots

# batch, heads, groups, q, k, d, window, kind of mask, include_self
CASES = [
    pytest.param(2, 4, 4, 150, 150, 16, 40, "none", True, id="causal"),
    pytest.param(2, 4, 2, 150, 150, 8, 40, "none", False, id="grouped, without self"),
    pytest.param(1, 4, 1, 101, 260, 8, 7, "none", True, id="chunked prefill"),
    pytest.param(3, 4, 2, 1, 90, 8, 40, "none", True, id="one query"),
    pytest.param(2, 2, 2, 1, 1, 8, 4, "none", False, id="one token, no window"),
    pytest.param(2, 2, 1, 20, 20, 8, 100, "none", True, id="window beyond the sequence"),
    pytest.param(2, 2, 2, 130, 130, 3, 1, "none", True, id="window of one, odd head size"),
    pytest.param(3, 4, 2, 150, 150, 8, 40, "left", True, id="left padding"),
    pytest.param(3, 4, 2, 150, 150, 8, 40, "right", True, id="right padding"),
    pytest.param(2, 4, 2, 30, 90, 8, 40, "left", False, id="left padding, chunked"),
    pytest.param(2, 4, 2, 600, 600, 8, 40, "packed", True, id="packed"),
    pytest.param(2, 4, 2, 5, 7, 8, 4, "static", True, id="static cache, prefill"),
    pytest.param(2, 4, 2, 1, 7, 8, 4, "static-step", True, id="static cache, step"),
    pytest.param(2, 4, 2, 60, 200, 8, 40, "static-step", False, id="static cache, chunk"),
    pytest.param(2, 4, 2, 100, 130, 8, 40, "random", True, id="any mask"),
]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("kind", ["none", "left", "right", "packed", "static", "random"])
def test_reference_is_the_definition(inputs, make_mask, kind, include_self):
    batch, heads, groups, q, k, d, window = 2, 4, 2, 5, 7, 3, 4
    query, key, value = inputs(batch, heads, groups, q, k, d)
    mask = make_mask(kind, batch, q, k)
    output, weights = window_attention(
        query, key, value, window, mask=mask, scale=0.7, include_self=include_self, backend="reference"
    )
    for b in range(batch):
        for i in range(q):
            row = range(k - q + i + 1) if mask is None else mask[b % len(mask), 0, i].nonzero().flatten().tolist()
            mean = [0.0] * k
            for h in range(heads):
                g = h // (heads // groups)
                scores = {j: 0.7 * float(query[b, h, i] @ key[b, g, j]) for j in row}
                total = sum(math.exp(s) for s in scores.values())
                attention = {j: math.exp(s) / total for j, s in scores.items()}
                expected = sum((p * value[b, g, j] for j, p in attention.items()), torch.zeros(d).double())
                torch.testing.assert_close(output[b, h, i], expected)
                for j, p in attention.items():
                    mean[j] += p / heads
            last = max(row, default=-1) - (not include_self)
            slots = range(last - window + 1, last + 1)
            expected = torch.tensor([mean[s] if s >= 0 else 0.0 for s in slots]).double()
            torch.testing.assert_close(weights[b, i], expected, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(("batch", "heads", "groups", "q", "k", "d", "window", "kind", "include_self"), CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_flash_equals_reference(inputs, make_mask, batch, heads, groups, q, k, d, window, kind, include_self, dtype):
    tensors = inputs(batch, heads, groups, q, k, d, dtype)
    mask = make_mask(kind, batch, q, k)
    options = {"mask": mask, "include_self": include_self}
    output, weights = window_attention(*tensors, window, **options, backend="flash")
    exact = window_attention(*(x.double() for x in tensors), window, **options, backend="reference")

    assert output.dtype == dtype
    assert output.shape == tensors[0].shape
    assert weights.dtype == torch.promote_types(dtype, torch.float32)
    assert weights.shape == (batch, q, window)
    # Output: rounding of one result and of the probabilities. Window: float32 from float32 accumulation, except
    # that the kernel sums probabilities in lower precision for 16-bit inputs.
    budget = {torch.float64: (1e-14, 1e-14), torch.float32: (2e-6, 5e-7)}.get(dtype, (4 * torch.finfo(dtype).eps, 2e-4))
    assert (output - exact.output).abs().max() <= budget[0]
    assert (weights - exact.window).abs().max() <= budget[1]


def test_scale_is_explicit(inputs):
    query, key, value = inputs(1, 2, 2, 60, 60, 8, torch.float32)
    default = window_attention(query, key, value, 5)
    explicit = window_attention(query, key, value, 5, scale=8**-0.5)
    halved = window_attention(query / 2, key, value, 5, scale=2 * 8**-0.5)
    torch.testing.assert_close(explicit, default, rtol=0, atol=0)
    torch.testing.assert_close(halved, default)
    flat = window_attention(query, key, value, 1, scale=1e-9).window[0, :, 0]
    torch.testing.assert_close(flat, 1 / torch.arange(1, 61))


@pytest.mark.parametrize("backend", ["flash", "reference"])
def test_rows_that_see_nothing_are_zero(inputs, make_mask, backend):
    query, key, value = inputs(3, 2, 2, 90, 90, 8, torch.float32)
    mask = make_mask("left", 3, 90, 90)
    output, weights = window_attention(query, key, value, 8, mask=mask, backend=backend)
    assert (output[2, :, :60] == 0).all()
    assert (weights[2, :60] == 0).all()
    assert (weights[2, 60:, -1] > 0).all()
    everything_masked = window_attention(query, key, value, 8, mask=torch.zeros_like(mask), backend=backend)
    assert (everything_masked.output == 0).all()
    assert (everything_masked.window == 0).all()


def test_forbidden_keys_cannot_overflow(inputs):
    """A masked neighbour that scores 1e5 above every allowed key leaves no trace."""
    query, key, value = inputs(1, 2, 2, 120, 120, 8, torch.float32)
    document = torch.arange(120) // 50
    mask = (document[:, None] == document[None]).tril()[None, None]
    loud = key.clone()
    loud[:, :, :50] = query[:, :, 50:51] * 1e5
    quiet = window_attention(query, key, value, 40, mask=mask)
    result = window_attention(query, loud, value, 40, mask=mask)
    torch.testing.assert_close(result.window[:, 50:], quiet.window[:, 50:], rtol=0, atol=0)
    assert result.window.isfinite().all()


def test_large_scores(inputs):
    query, key, value = inputs(1, 2, 2, 70, 70, 8)
    options = {"scale": 40.0}
    flash = window_attention(query.float(), key.float(), value.float(), 12, **options)
    exact = window_attention(query.float().double(), key.float().double(), value.float().double(), 12, **options)
    assert (flash.window - exact.window).abs().max() < 1e-4  # float32 scores of several hundred


def test_batch_rows_are_independent(inputs, make_mask):
    query, key, value = inputs(3, 4, 2, 100, 100, 8, torch.float32)
    mask = make_mask("left", 3, 100, 100)
    together = window_attention(query, key, value, 40, mask=mask)
    for b in range(3):
        alone = window_attention(query[b : b + 1], key[b : b + 1], value[b : b + 1], 40, mask=mask[b : b + 1])
        torch.testing.assert_close(alone.window, together.window[b : b + 1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(alone.output, together.output[b : b + 1], atol=1e-6, rtol=1e-5)


def test_decoding_step_by_step_equals_prefill(inputs):
    query, key, value = inputs(2, 4, 2, 60, 60, 8, torch.float32)
    whole = window_attention(query, key, value, 10)
    for i in range(60):
        step = window_attention(query[:, :, i : i + 1], key[:, :, : i + 1], value[:, :, : i + 1], 10)
        torch.testing.assert_close(step.window, whole.window[:, i : i + 1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(step.output, whole.output[:, :, i : i + 1], atol=1e-6, rtol=1e-5)


def test_layouts_do_not_matter(inputs):
    """Contiguous heads, strided last dimension, broadcast mask: same numbers."""
    query, key, value = inputs(2, 4, 2, 100, 100, 8, torch.float32)
    expected = window_attention(query, key, value, 40)
    contiguous = window_attention(query.contiguous(), key.contiguous(), value.contiguous(), 40)
    torch.testing.assert_close(contiguous, expected, atol=1e-6, rtol=1e-5)
    turned = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (query, key, value)]
    torch.testing.assert_close(window_attention(*turned, 40), expected, atol=1e-6, rtol=1e-5)
    causal = torch.ones(100, 100, dtype=torch.bool).tril()[None, None]
    torch.testing.assert_close(window_attention(query, key, value, 40, mask=causal), expected, atol=1e-6, rtol=1e-5)


def test_last_slots():
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)[None, None]
    assert last_slots(mask).tolist() == [[2, -1, 3, 0]]


def test_several_tiles_are_tested():
    assert TILE_ROWS < 100


def test_errors_name_what_is_wrong(inputs):
    query, key, value = inputs(2, 4, 2, 5, 7, 8, torch.float32)
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)

    def refused(match, *args, error=ConfigError, **kwargs):
        with pytest.raises(error, match=match):
            window_attention(*args, **kwargs)

    for window in (0, -3, 2.0, True):
        refused("window must be an integer of at least 1", query, key, value, window)
    refused("key/value heads must divide", query[:, :3], key, value, 4)
    refused("of one shape", query, key, value[..., :4], 4)
    refused("batch and head size", query, key[:1], value[:1], 4)
    refused("batch and head size", query[..., :4], key, value, 4)
    refused("no dimension be empty", query[:, :, :0], key, value, 4)
    refused("share one floating dtype", query, key.half(), value, 4)
    refused("share one floating dtype", query.int(), key.int(), value.int(), 4)
    for scale in (0.0, -1.0, float("inf"), float("nan")):
        refused("scale must be positive", query, key, value, 4, scale=scale)
    refused("q > k", query, key[:, :, :3], value[:, :, :3], 4)
    refused("mask must be bool", query, key, value, 4, mask=mask.float())
    refused(r"mask must be \[B or 1, 1, q, k\]", query, key, value, 4, mask=mask[:, :, :, :6])
    refused(r"mask must be \[B or 1, 1, q, k\]", query, key, value, 4, mask=mask.expand(2, 4, 5, 7))
    refused("did you mean 'flash'", query, key, value, 4, backend="flahs", error=BackendError)
    refused("'flex' does not run on cpu; choose 'flash' or", query, key, value, 4, backend="flex", error=BackendError)
