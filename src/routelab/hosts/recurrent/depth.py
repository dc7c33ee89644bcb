"""How deep a training step recurs, and through how many of its steps gradients flow."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

_SIGMA = 0.5


class Depth(NamedTuple):
    """Steps without gradient, then steps with."""

    without_gradient: int
    with_gradient: int

    @property
    def steps(self) -> int:
        return self.without_gradient + self.with_gradient


def sample_depth(mean: int, backprop: int, *, generator: torch.Generator | None = None) -> Depth:
    """Draw the depth of one training step: log-normal Poisson (arXiv 2502.05171, section 3.3).

    ``r = Poisson(λ) + 1`` with ``log λ ~ N(log mean − σ²/2, σ²)``, σ = 0.5; gradients flow through the last
    ``min(r, backprop)`` steps. ``generator`` (CPU) defaults to torch's own, which training seeds and checkpoints.
    """
    rate = torch.empty(1).log_normal_(math.log(mean) - _SIGMA**2 / 2, _SIGMA, generator=generator)
    steps = int(torch.poisson(rate, generator=generator)) + 1
    with_gradient = min(steps, backprop)
    return Depth(steps - with_gradient, with_gradient)
