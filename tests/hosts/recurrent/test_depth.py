"""Random recurrence depth of training."""

from __future__ import annotations

import torch

from routelab.hosts.recurrent.depth import Depth, sample_depth


def test_log_normal_poisson() -> None:
    generator = torch.Generator().manual_seed(0)
    depths = [sample_depth(32, 8, generator=generator) for _ in range(6000)]
    steps = torch.tensor([depth.steps for depth in depths]).double()
    # A Poisson of a log-normal rate of mean 32: mean 32 + 1, variance 32 + 32² (exp(σ²) − 1).
    assert abs(steps.mean() - 33) < 0.8
    assert abs(steps.std() - (32 + 32**2 * (torch.tensor(0.25).exp() - 1)) ** 0.5) < 1
    assert steps.min() >= 1
    assert all(depth.with_gradient == min(depth.steps, 8) for depth in depths)


def test_seeded() -> None:
    def draw(seed: int) -> list[Depth]:
        generator = torch.Generator().manual_seed(seed)
        return [sample_depth(6, 4, generator=generator) for _ in range(20)]

    assert draw(1) == draw(1) != draw(2)
    torch.manual_seed(3)
    first = [sample_depth(6, 4) for _ in range(20)]
    torch.manual_seed(3)
    assert first == [sample_depth(6, 4) for _ in range(20)]
