"""The mathematics of AAR against the equations, written out token by token."""

from __future__ import annotations

import math

import pytest
import torch

from routelab.methods.aar.layer import AttentionRouter, view_features


def make_router(views: tuple[str, ...], window: int = 7, scale: float | None = None) -> AttentionRouter:
    return AttentionRouter(
        hidden_size=5,
        num_experts=3,
        window=window,
        views=views,
        init_std=0.5,
        gate_scale_init=scale,
        generator=torch.Generator().manual_seed(1),
        device=torch.device("cpu"),
    )


def equations(router: AttentionRouter, h: torch.Tensor, standard: torch.Tensor, w: torch.Tensor) -> list[list[float]]:
    """Equations 2 to 5 in scalar loops."""
    scale = 1.0 if router.gate_scale is None else router.gate_scale.item()
    result = []
    for hidden, logits, window in zip(h.tolist(), standard.tolist(), w.tolist(), strict=True):
        size = len(window)
        features = {"time": window}
        features["frequency"] = [
            math.log(
                1
                + abs(
                    sum(
                        x * complex(math.cos(a := -2 * math.pi * k * t / size), math.sin(a))
                        for t, x in enumerate(window)
                    )
                )
            )
            for k in range(size // 2 + 1)
        ]
        row = []
        for expert, standard_logit in enumerate(logits):
            alphas, products = [], []
            for view in router.views:
                seen = hidden + features[view]
                z = sum(g * x for g, x in zip(router.G[view][expert].tolist(), seen, strict=True))
                alpha = scale / (1 + math.exp(-z))
                g = sum(a * x for a, x in zip(router.A[view][:, expert].tolist(), features[view], strict=True))
                alphas.append(alpha)
                products.append(alpha * g)
            share = sum(alphas) / len(alphas)
            row.append((1 - share) * standard_logit + sum(products) / len(products))
        result.append(row)
    return result


@pytest.mark.parametrize("views", [("time",), ("frequency",), ("time", "frequency")])
@pytest.mark.parametrize("window", [1, 6, 7])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_forward_is_equation_5(views: tuple[str, ...], window: int, scale: float | None) -> None:
    router = make_router(views, window, scale).double()
    h, standard = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    w = torch.rand(4, window, dtype=torch.float64)
    expected = torch.tensor(equations(router, h, standard, w), dtype=torch.float64)
    torch.testing.assert_close(router(h, standard, w), expected, rtol=1e-12, atol=1e-12)


def test_gradients_exist_for_zero_windows() -> None:
    """Padding has an all-zero window: the magnitude of its spectrum must not make gradients NaN."""
    router = make_router(("time", "frequency"))
    w = torch.zeros(2, 7, requires_grad=True)
    router(torch.randn(2, 5), torch.randn(2, 3), w).sum().backward()
    gradients = [w.grad, *(parameter.grad for parameter in router.parameters())]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)


def test_gradcheck() -> None:
    router = make_router(("time", "frequency"), scale=0.5).double()
    inputs = [torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5), (3, 3), (3, 7))]
    assert torch.autograd.gradcheck(router, inputs)


def test_zero_scale_returns_the_standard_logits_exactly() -> None:
    router = make_router(("time", "frequency"), scale=0.0)
    standard = torch.randn(4, 3).bfloat16()
    result = router(torch.randn(4, 5).bfloat16(), standard, torch.rand(4, 7))
    assert result.dtype == torch.float32
    assert torch.equal(result, standard.float())


def test_compiles_without_graph_breaks() -> None:
    router = make_router(("time", "frequency"))
    arguments = torch.randn(4, 5), torch.randn(4, 3), torch.rand(4, 7)
    compiled = torch.compile(router, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*arguments), router(*arguments))


def test_frequency_view_is_blind_to_circular_shifts() -> None:
    w = torch.rand(2, 9, dtype=torch.float64)
    shifted = view_features("frequency", w.roll(4, dims=-1))
    torch.testing.assert_close(view_features("frequency", w), shifted)
