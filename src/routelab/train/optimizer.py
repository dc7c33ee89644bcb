"""AdamW in float32 for parameters of any precision, and its schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from routelab.errors import CheckpointError
from routelab.train.config import TrainConfig


class MasterAdamW(torch.optim.AdamW):
    """AdamW that updates a float32 copy of every parameter of lower precision and rounds the copy into it.

    A bfloat16 weight of size 0.02 has steps of 1e-4; updates of a learning rate of 1e-4 and below would vanish in it.
    float32 parameters are updated directly.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], *, lr: float, weight_decay: float) -> None:
        self.live = dict(named)
        self.masters = {name: _master(parameter) for name, parameter in named.items()}
        super().__init__(list(self.masters.values()), lr=lr, weight_decay=weight_decay)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the masters from the live gradients, then the live parameters from the masters."""
        pairs = [(self.live[name], master) for name, master in self.masters.items() if master is not self.live[name]]
        for live, master in pairs:
            master.grad = None if live.grad is None else live.grad.float()
        result = super().step(closure)
        for live, master in pairs:
            live.copy_(master)
            master.grad = None
        return result

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that the next step depends on: moments, step counts and masters, by parameter name."""
        found = {}
        for name, master in self.masters.items():
            found.update({f"{name}/{key}": value for key, value in (self.state[master] or _untouched(master)).items()})
            if master is not self.live[name]:
                found[f"{name}/master"] = master.detach()
        return found

    @torch.no_grad()
    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`tensors` returned.

        Raises:
            CheckpointError: a tensor is missing, unknown, or of another shape.
        """
        unused = dict(tensors)
        for name, master in self.masters.items():
            for key in ("step", "exp_avg", "exp_avg_sq", "master"):
                if key == "master" and master is self.live[name]:
                    continue
                value = unused.pop(f"{name}/{key}", None)
                shape = torch.Size() if key == "step" else master.shape
                if value is None or value.shape != shape:
                    what = "is missing" if value is None else f"has shape {tuple(value.shape)}, not {tuple(shape)}"
                    raise CheckpointError(f"optimizer state {name}/{key} {what}")
                if key == "master":
                    master.copy_(value)
                else:
                    self.state[master][key] = value.clone() if key == "step" else value.to(master.device, copy=True)
        if unused:
            raise CheckpointError(f"optimizer state of unknown parameters: {', '.join(sorted(unused)[:5])}")


def _untouched(master: nn.Parameter) -> dict[str, Tensor]:
    """Return the state of a parameter that has had no gradient yet, equal to none at all."""
    zeros = torch.zeros_like(master.detach())
    return {"step": torch.tensor(0.0), "exp_avg": zeros, "exp_avg_sq": zeros.clone()}


def _master(parameter: nn.Parameter) -> nn.Parameter:
    if parameter.dtype == torch.float32:
        return parameter
    return nn.Parameter(parameter.detach().to(torch.float32, copy=True))


def linear_schedule(optimizer: torch.optim.Optimizer, config: TrainConfig, steps: int) -> LambdaLR:
    """Return the schedule: ``lr·(s+1)/(W+1)`` for the first ``W = ⌈warmup_ratio·steps⌉`` steps *s*, then linearly to 0
    after the last step."""
    warmup = min(math.ceil(config.warmup_ratio * steps), steps - 1)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return max(0.0, (steps - step) / (steps - warmup))

    return LambdaLR(optimizer, factor)
