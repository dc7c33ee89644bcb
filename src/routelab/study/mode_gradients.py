"""Gradients of think and no_think examples with respect to the MLPs of one model, taken without leaving a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from routelab.errors import EvaluationError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODES = ("no_think", "think")
IGNORED = -100

Gradient = list[Tensor]
"""One tensor per parameter of the chosen MLPs."""


class Labelled(Protocol):
    """One encoded chat, such as ``routelab.train.encode.Document``: input ids and labels ``[length]``."""

    @property
    def input_ids(self) -> Sequence[int] | np.ndarray: ...

    @property
    def labels(self) -> Sequence[int] | np.ndarray: ...


@dataclass(frozen=True)
class ModeGradient:
    """The gradients of one mode.

    Attributes:
        even, odd: summed over the examples of even and of odd number.
        mean: over all examples.
        token_summed: every example times its labelled tokens.
    """

    even: Gradient
    odd: Gradient
    mean: Gradient
    token_summed: Gradient
    examples: int
    tokens: int
    loss: float


class GradientProbe:
    """Gradients and curvature of the mean loss of examples with respect to the parameters of some MLPs."""

    def __init__(
        self,
        model: PreTrainedModel,
        mlps: Mapping[int, nn.Module],
        examples: Mapping[str, Sequence[Labelled]],
        rounds: int,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self.model, self.examples, self.on_progress = model, examples, on_progress
        self.parameters: list[nn.Parameter] = []
        self.slices: dict[int, slice] = {}
        for index, mlp in mlps.items():
            start = len(self.parameters)
            self.parameters += mlp.parameters()
            self.slices[index] = slice(start, len(self.parameters))
        self.done, self.total = 0, rounds * sum(map(len, examples.values()))

    def gradients(self, mode: str) -> ModeGradient:
        """Return the gradients of ``mode`` where the parameters stand."""
        halves = [self._zeros(), self._zeros()]
        summed = self._zeros()
        tokens, loss = 0, 0.0
        for number, example in enumerate(self.examples[mode]):
            value, labelled, gradient = self._one(example, f"example {number} of {mode}")
            for half, total, each in zip(halves[number % 2], summed, gradient, strict=True):
                half += each
                total += each * labelled
            tokens, loss = tokens + labelled, loss + value
        n = len(self.examples[mode])
        mean = [(even + odd) / n for even, odd in zip(*halves, strict=True)]
        return ModeGradient(halves[0], halves[1], mean, summed, n, tokens, loss / n)

    def curvature(self, mode: str, basis: Sequence[Gradient], step: float) -> np.ndarray:
        """Return the Gauss-Newton matrix of the mean loss of ``mode`` in the space of ``basis`` (k axes): ``[k, k]``.

        The mean over labelled tokens, then over examples, of ``(J a)·(diag(p) - p pᵀ)(J b)`` for axes a and b, with p
        the predicted probabilities and J the Jacobian of the logits. ``J a`` is a central difference over ``step``.
        """
        here = [parameter.detach().clone() for parameter in self.parameters]
        total = np.zeros((len(basis), len(basis)))
        with torch.no_grad():
            for number, example in enumerate(self.examples[mode]):
                logits, labels = self._logits(example, f"example {number} of {mode}")
                seen = labels != IGNORED
                p = logits[seen].double().softmax(-1)
                changes = []
                for axis in basis:
                    ends = []
                    for sign in (1, -1):
                        self._place(here, axis, sign * step)
                        ends.append(self._logits(example, "")[0][seen].double())
                    changes.append((ends[0] - ends[1]) / (2 * step))
                self._place(here, basis[0], 0.0)
                u = torch.stack(changes)
                centred = u - (p * u).sum(-1, keepdim=True)
                total += torch.einsum("atv,btv,tv->ab", centred, centred, p).div(len(p)).cpu().numpy()
                self._passed()
        return np.asarray(total / len(self.examples[mode]))

    def _place(self, origin: Gradient, axis: Gradient, length: float) -> None:
        for parameter, start, each in zip(self.parameters, origin, axis, strict=True):
            parameter.copy_(start + length * each.to(start.dtype))

    def _logits(self, example: Labelled, name: str) -> tuple[Tensor, Tensor]:
        """Return logits ``[length - 1, vocabulary]`` in at least float32, and the labels that they predict."""
        device = self.model.device
        ids = torch.as_tensor(np.asarray(example.input_ids), dtype=torch.long, device=device)
        labels = torch.as_tensor(np.asarray(example.labels), dtype=torch.long, device=device)[1:]
        if not (labels != IGNORED).any():
            raise EvaluationError(f"{name} has no labelled token")
        logits = self.model(input_ids=ids[None], use_cache=False).logits[0, :-1]
        return logits.to(torch.promote_types(logits.dtype, torch.float32)), labels

    def _one(self, example: Labelled, name: str) -> tuple[float, int, tuple[Tensor, ...]]:
        logits, labels = self._logits(example, name)
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORED)
        if not torch.isfinite(loss):
            raise EvaluationError(f"{name} has the loss {loss.item()}")
        gradient = torch.autograd.grad(loss, self.parameters)
        self._passed()
        return loss.item(), int((labels != IGNORED).sum()), gradient

    def _passed(self) -> None:
        self.done += 1
        if self.on_progress is not None:
            self.on_progress(self.done, self.total)

    def _zeros(self) -> Gradient:
        return [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in self.parameters]


@contextmanager
def untouched(model: PreTrainedModel, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Evaluation mode, and gradients for ``parameters`` alone; everything is as before afterwards."""
    training = [module for module in model.modules() if module.training]
    trained = {parameter: parameter.requires_grad for parameter in model.parameters()}
    saved = [parameter.detach().clone() for parameter in parameters]
    model.eval()
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        with torch.enable_grad():
            yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, saved, strict=True):
                parameter.copy_(value)
        for parameter, requires_grad in trained.items():
            parameter.requires_grad_(requires_grad)
        for module in training:
            module.training = True


def cosine(first: Gradient, second: Gradient) -> float | None:
    """Return the cosine of two gradients; None where one of them is zero."""
    lengths = math.sqrt(dot(first, first) * dot(second, second))
    return dot(first, second) / lengths if lengths else None


@torch.no_grad()
def dot(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return the inner product of two gradients, in float64."""
    return float(sum((a.double() * b.double()).sum() for a, b in zip(first, second, strict=True)))
