"""Properties of the window operator over random shapes and masks."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routelab.ops.window import window_attention

quick = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def problems(draw: st.DrawFn) -> dict:
    groups, per_group = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 4]))
    keys = draw(st.integers(1, 130))
    return {
        "shape": (draw(st.integers(1, 3)), groups * per_group, groups, draw(st.integers(1, keys)), keys),
        "d": draw(st.sampled_from([1, 4, 5, 16])),
        "window": draw(st.sampled_from([1, 2, 7, 40, 64, 200])),
        "kind": draw(st.sampled_from(["none", "left", "right", "packed", "static", "static-step", "random"])),
        "include_self": draw(st.booleans()),
        "seed": draw(st.integers(0, 9)),
    }


@quick
@given(problem=problems())
def test_values_and_gradients_equal_the_reference(inputs, make_mask, problem):
    batch, heads, _, q, k = problem["shape"]
    tensors = inputs(*problem["shape"], problem["d"], seed=problem["seed"])
    mask = make_mask(problem["kind"], batch, q, k, seed=problem["seed"])
    grads = torch.randn(batch, heads, q, problem["d"]).double(), torch.randn(batch, q, problem["window"]).double()
    results = []
    for backend in ("flash", "reference"):
        leaves = [x.clone().requires_grad_() for x in tensors]
        result = window_attention(
            *leaves, problem["window"], mask=mask, include_self=problem["include_self"], backend=backend
        )
        torch.autograd.backward(tuple(result), grads)
        results.append([*result, *(x.grad for x in leaves)])
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-11)


@quick
@given(problem=problems())
def test_the_window_is_a_share_of_attention(inputs, make_mask, problem):
    """Weights lie in [0, 1] and sum to at most 1; a window over the whole sequence holds all that is allowed."""
    batch, _, _, q, k = problem["shape"]
    tensors = inputs(*problem["shape"], problem["d"], dtype=torch.float32, seed=problem["seed"])
    mask = make_mask(problem["kind"], batch, q, k, seed=problem["seed"])
    result = window_attention(*tensors, problem["window"], mask=mask, include_self=problem["include_self"])
    assert (result.window >= 0).all()
    assert (result.window.sum(-1) <= 1 + 1e-5).all()
    whole = window_attention(*tensors, k, mask=mask).window.sum(-1)
    alive = torch.ones(batch, q, dtype=torch.bool) if mask is None else mask[:, 0].any(-1).expand(batch, q)
    torch.testing.assert_close(whole, alive.float(), rtol=1e-5, atol=1e-5)


@quick
@given(problem=problems())
def test_wider_windows_extend_narrow_ones(inputs, make_mask, problem):
    batch, _, _, q, k = problem["shape"]
    tensors = inputs(*problem["shape"], problem["d"], dtype=torch.float32, seed=problem["seed"])
    mask = make_mask(problem["kind"], batch, q, k, seed=problem["seed"])
    narrow = window_attention(*tensors, problem["window"], mask=mask).window
    wide = window_attention(*tensors, problem["window"] + 5, mask=mask).window
    torch.testing.assert_close(wide[..., 5:], narrow, rtol=1e-5, atol=1e-6)
    before = window_attention(*tensors, problem["window"], mask=mask, include_self=False).window
    torch.testing.assert_close(before, wide[..., 4:-1], rtol=1e-5, atol=1e-6)
