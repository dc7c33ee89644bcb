"""The chunked loss against the full logits, values and gradients."""

from __future__ import annotations

import pytest
import torch

from routelab.errors import ConfigError
from routelab.ops.linear_cross_entropy import WORDS, linear_cross_entropy
from routelab.ops.linear_cross_entropy_reference import linear_cross_entropy_reference


def draw(tokens: int = 13, words: int = 29, size: int = 7, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, size, generator=generator, dtype=torch.float64) * scale
    weight = torch.randn(words, size, generator=generator, dtype=torch.float64)
    return hidden.requires_grad_(), weight.requires_grad_(), torch.randint(words, (tokens,), generator=generator)


@pytest.mark.parametrize("words", [29, WORDS, 2 * WORDS + 1], ids=lambda words: f"{words} words")
@pytest.mark.parametrize("rows", [1, 4, 13, 100], ids=lambda rows: f"{rows} rows a chunk")
def test_equals_the_reference(rows: int, words: int) -> None:
    hidden, weight, targets = draw(words=words)
    found = linear_cross_entropy(hidden, weight, targets, chunk_bytes=rows * words * 8)
    wanted = linear_cross_entropy_reference(hidden, weight, targets)
    torch.testing.assert_close(found, wanted, atol=1e-13, rtol=1e-13)
    for ours, theirs in zip(
        torch.autograd.grad(3 * found, (hidden, weight)), torch.autograd.grad(3 * wanted, (hidden, weight)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-13, rtol=1e-12)


def test_float32_is_as_exact_as_the_plain_computation() -> None:
    hidden, weight, targets = draw(200, 500, 64)
    exact = torch.autograd.grad(linear_cross_entropy_reference(hidden, weight, targets), (hidden, weight))
    single = [tensor.detach().float().requires_grad_() for tensor in (hidden, weight)]
    plain = torch.autograd.grad(linear_cross_entropy_reference(*single, targets), single)
    ours = torch.autograd.grad(linear_cross_entropy(*single, targets, chunk_bytes=2**15), single)
    for a, b, reference in zip(ours, plain, exact, strict=True):
        budget = 2 * (b - reference).abs().max() + 1e-9
        assert (a - reference).abs().max() <= budget


def test_no_overflow_where_one_word_is_certain() -> None:
    hidden, weight, targets = draw(scale=1e4)
    loss = linear_cross_entropy(hidden, weight, targets)
    torch.testing.assert_close(loss, linear_cross_entropy_reference(hidden, weight, targets))
    assert torch.isfinite(torch.autograd.grad(loss, hidden)[0]).all()


@pytest.mark.parametrize("frozen", [0, 1])
def test_one_side_may_be_frozen(frozen: int) -> None:
    tensors = draw()
    tensors[frozen].requires_grad_(False)
    found = torch.autograd.grad(linear_cross_entropy(*tensors), tensors[1 - frozen])[0]
    wanted = torch.autograd.grad(linear_cross_entropy_reference(*tensors), tensors[1 - frozen])[0]
    torch.testing.assert_close(found, wanted)


def test_without_gradients() -> None:
    with torch.no_grad():
        tensors = draw()
        torch.testing.assert_close(linear_cross_entropy(*tensors), linear_cross_entropy_reference(*tensors))


def test_what_does_not_fit_is_named() -> None:
    hidden, weight, targets = draw()
    with pytest.raises(ConfigError, match="must agree in d and dtype"):
        linear_cross_entropy(hidden, weight.float(), targets)
    with pytest.raises(ConfigError, match=r"got \(12,\)"):
        linear_cross_entropy(hidden, weight, targets[1:])
    with pytest.raises(ConfigError, match="at least one"):
        linear_cross_entropy(hidden[:0], weight, targets[:0])
