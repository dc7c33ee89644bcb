"""Gradients of the flash window operator, through both of its results."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from routelab.ops.window import window_attention
from routelab.ops.window_flash import _backward, _forward

CASES = [
    pytest.param(2, 4, 4, 150, 150, 16, 40, "none", True, id="causal"),
    pytest.param(2, 4, 2, 150, 150, 8, 40, "none", False, id="grouped, without self"),
    pytest.param(1, 4, 1, 101, 260, 8, 7, "none", True, id="chunked prefill"),
    pytest.param(3, 4, 2, 1, 90, 8, 40, "none", True, id="one query"),
    pytest.param(2, 2, 1, 20, 20, 8, 100, "none", True, id="window beyond the sequence"),
    pytest.param(3, 4, 2, 150, 150, 8, 40, "left", True, id="left padding"),
    pytest.param(3, 4, 2, 150, 150, 8, 40, "right", True, id="right padding"),
    pytest.param(2, 4, 2, 200, 200, 8, 40, "packed", True, id="packed"),
    pytest.param(2, 4, 2, 5, 7, 8, 4, "static", True, id="static cache, prefill"),
    pytest.param(2, 4, 2, 60, 200, 8, 40, "static-step", False, id="static cache, chunk"),
    pytest.param(2, 4, 2, 100, 130, 8, 40, "random", True, id="any mask"),
]


def gradients(tensors, window, grad_output, grad_window, **options) -> list[Tensor | None]:
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    result = window_attention(*leaves, window, **options)
    pairs = [(r, g) for r, g in zip(result, (grad_output, grad_window), strict=True) if g is not None]
    torch.autograd.backward([r for r, _ in pairs], [g.to(r.dtype) for r, g in pairs])
    return [x.grad for x in leaves]


def error(got: list[Tensor], exact: list[Tensor]) -> float:
    """Largest error of the three gradients, each relative to the largest entry of the exact one."""
    return max(float((g - e).abs().max() / e.abs().max().clamp_min(1e-3)) for g, e in zip(got, exact, strict=True))


@pytest.mark.parametrize(("batch", "heads", "groups", "q", "k", "d", "window", "kind", "include_self"), CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_equal_the_float64_reference(
    inputs, make_mask, batch, heads, groups, q, k, d, window, kind, include_self, dtype
):
    tensors = inputs(batch, heads, groups, q, k, d, dtype)
    options = {"mask": make_mask(kind, batch, q, k), "include_self": include_self}
    generator = torch.Generator().manual_seed(1)
    grad_output = torch.randn(batch, heads, q, d, generator=generator, dtype=torch.float64).to(dtype).double()
    grad_window = torch.randn(batch, q, window, generator=generator, dtype=torch.float64).float().double()

    exact = gradients([x.double() for x in tensors], window, grad_output, grad_window, **options, backend="reference")
    got = gradients(tensors, window, grad_output, grad_window, **options, backend="flash")
    budget = {torch.float64: 1e-13, torch.float32: 1e-5}.get(dtype)
    if budget is None:  # what the same kernel makes of the output's gradient alone, in this precision
        plain = gradients([x.double() for x in tensors], window, grad_output, None, **options, backend="reference")
        baseline = error(gradients(tensors, window, grad_output, None, **options, backend="flash"), plain)
        budget = 2 * baseline + 4 * torch.finfo(dtype).eps
    assert error(got, exact) <= budget
    assert all(g.dtype == dtype for g in got)


@pytest.mark.parametrize(
    ("groups", "q", "k", "kind", "include_self"),
    [(2, 6, 6, "none", True), (1, 4, 7, "none", False), (2, 5, 7, "left", True), (1, 5, 7, "random", True)],
)
@pytest.mark.parametrize("backend", ["flash", "reference"])
def test_gradcheck(inputs, make_mask, groups, q, k, kind, include_self, backend):
    leaves = [x.requires_grad_() for x in inputs(2, 2, groups, q, k, 3)]
    mask = make_mask(kind, 2, q, k)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(window_attention(*tensors, 3, mask=mask, include_self=include_self, backend=backend))

    assert torch.autograd.gradcheck(run, leaves)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scale", [0.0, 1e-42, 1e-30, 1e-19, 1e-9, 1e-4, 1e6])
def test_rows_with_hardly_any_output_gradient(inputs, dtype, scale):
    """dlse rides on dO: it must arrive where dO is zero, subnormal, tiny or huge beside it."""
    tensors = inputs(2, 4, 2, 90, 90, 8, dtype)
    generator = torch.Generator().manual_seed(1)
    grad_output = torch.randn(2, 4, 90, 8, generator=generator, dtype=torch.float64)
    grad_output[:, :, ::2] *= min(scale, 1e3) if dtype == torch.float16 else scale
    grad_output[:, 1] *= 0
    grad_output = grad_output.to(dtype).double()
    grad_window = torch.randn(2, 90, 12, generator=generator, dtype=torch.float64)
    exact = gradients([x.double() for x in tensors], 12, grad_output, grad_window, backend="reference")
    got = gradients(tensors, 12, grad_output, grad_window)
    budget = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 3e-2}.get(dtype, 4e-3)
    assert error(got, exact) <= budget


@pytest.mark.parametrize("size", [1e-38, 1e-25, 1e-19, 1e-12, 1e12, 1e18])
def test_tiny_and_huge_gradients(inputs, size):
    """Everything scales together, far below and above one: the result stays finite and proportional."""
    tensors = inputs(1, 2, 2, 60, 60, 8, torch.float32)
    grad_output, grad_window = torch.ones(1, 2, 60, 8) * size, torch.ones(1, 60, 5) * size
    exact = gradients([x.double() for x in tensors], 5, grad_output.double(), grad_window.double(), backend="reference")
    got = gradients(tensors, 5, grad_output, grad_window)
    for g, e in zip(got, exact, strict=True):
        assert g.isfinite().all()
        assert (g - e).abs().max() <= 1e-5 * e.abs().max() + 1e-19


def test_forbidden_keys_cannot_overflow(inputs):
    """A masked neighbour that scores far above every allowed key sends no NaN into the gradients."""
    query, key, value = inputs(1, 2, 2, 120, 120, 8, torch.float32)
    document = torch.arange(120) // 50
    mask = (document[:, None] == document[None]).tril()[None, None]
    grads = torch.ones(1, 2, 120, 8), torch.randn(1, 120, 40)
    quiet = gradients((query, key, value), 40, *grads, mask=mask)
    loud = key.clone()
    loud[:, :, :50] = query[:, :, 50:51] * 1e5
    for got, expected in zip(gradients((query, loud, value), 40, *grads, mask=mask), quiet, strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got[:, :, 50:], expected[:, :, 50:])


def test_either_result_alone(inputs):
    tensors = inputs(2, 4, 2, 70, 70, 8, torch.float32)
    wide = [x.double() for x in tensors]
    grad_output, grad_window = torch.ones(2, 4, 70, 8), torch.randn(2, 70, 9)
    plain = gradients(tensors, 9, grad_output, None)
    assert error(plain, gradients(wide, 9, grad_output.double(), None, backend="reference")) < 1e-5
    query, key, value = gradients(tensors, 9, None, grad_window)
    exact = gradients(wide, 9, None, grad_window.double(), backend="reference")
    assert error([query, key], exact[:2]) < 1e-5
    assert value is None


def test_only_what_needs_gradient_gets_one(inputs):
    query, key, value = inputs(1, 2, 2, 30, 30, 8, torch.float32)
    query.requires_grad_()
    result = window_attention(query, key, value, 4)
    (result.output.sum() + result.window.square().sum()).backward()
    assert query.grad is not None
    with torch.no_grad():
        assert not window_attention(query, key, value, 4).window.requires_grad


def loss(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    result = window_attention(query, key, value, 12, mask=mask)
    return result.output.sin().sum() + result.window.square().sum() * 50


@pytest.mark.parametrize("kind", ["none", "left"])
@pytest.mark.parametrize("how", ["checkpoint", "compile"])
def test_checkpoint_and_compile_change_nothing(inputs, make_mask, how, kind):
    tensors = inputs(2, 4, 2, 100, 100, 8, torch.float32)
    mask = make_mask(kind, 2, 100, 100)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = []
    for wrapped in (False, True):
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        if not wrapped:
            value = loss(*leaves, mask)
        elif how == "compile":
            value = compiled(*leaves, mask)
        else:
            value = checkpoint(loss, *leaves, mask, use_reentrant=False)
        value.backward()
        results.append([value.detach(), *(x.grad for x in leaves)])
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize(("q", "kind"), [(90, "none"), (90, "left"), (30, "none"), (1, "none")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_compilers_are_told_the_true_layouts(inputs, make_mask, q, kind, contiguous, dtype):
    """Shapes, dtypes and strides that compilation plans with are those that the operators return."""
    tensors = inputs(2, 4, 2, q, 90, 8, dtype)
    if contiguous:
        tensors = tuple(x.contiguous() for x in tensors)
    query, key, value = tensors
    mask = make_mask(kind, 2, q, 90)
    real = _forward(query, key, value, mask, 7, 0.3, True)
    grads = _backward(real[0], real[1], query, key, value, mask, real[0], real[2], 0.3, True)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in tensors]
        cover = None if mask is None else mode.from_tensor(mask)
        told = _forward(*fakes, cover, 7, 0.3, True)
        told_grads = _backward(told[0], told[1], *fakes, cover, told[0], told[2], 0.3, True)
    for ours, planned in zip((*real, *grads), (*told, *told_grads), strict=True):
        assert (ours.shape, ours.dtype) == (planned.shape, planned.dtype)
        strides = [[step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1] for x in (ours, planned)]
        assert strides[0] == strides[1]


def test_autocast_lowers_like_sdpa(inputs):
    """Mixed float32 and bfloat16 inputs, as normalised queries are under autocast; the band stays float32."""
    query, key, value = inputs(1, 2, 2, 80, 80, 8, torch.float32)
    lowered = window_attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), 6)
    leaves = [query.requires_grad_(), key.requires_grad_(), value.bfloat16().requires_grad_()]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = window_attention(*leaves, 6)
        torch.testing.assert_close(tuple(result), tuple(lowered), rtol=0, atol=0)
        (result.output.float().sum() + result.window.square().sum()).backward()
    assert [x.grad.dtype for x in leaves] == [torch.float32, torch.float32, torch.bfloat16]
