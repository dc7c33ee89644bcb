"""Mean cross-entropy of a linear output layer, without ever holding all logits.

The logits of N tokens over V words are the largest tensors of a small language model, written and read several times.
Here a chunk of rows small enough for the processor's cache goes through everything that is needed of it, the two
gradients too: products of some hundred words each make the logits, softmax and the subtraction of the one-hot target
run in place, and two products turn the result into gradients. The backward pass only scales them.

Shapes: N tokens, d hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from routelab.errors import ConfigError

CHUNK_BYTES = 2**23
# The logits product is a third faster by this many words at a time, 256 KiB of weights at d = 128, than in one call.
WORDS = 512


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, *, chunk_bytes: int = CHUNK_BYTES) -> Tensor:
    """Return ``mean_n -log softmax(W h_n)[targets_n]``, a scalar; gradients reach ``hidden`` and ``weight``.

    Equal to ``F.cross_entropy(hidden @ weight.T, targets)``, gradients included, to rounding.

    Args:
        hidden: ``[N, d]``, float32 or float64.
        weight: ``[V, d]``, of the same dtype.
        targets: ``[N]`` int64 below V.
        chunk_bytes: how much of the logits is held at a time.

    Raises:
        ConfigError: shapes or dtypes do not fit together, or there are no tokens.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1] or hidden.dtype != weight.dtype:
        raise ConfigError(
            f"hidden [N, d] and weight [V, d] must agree in d and dtype, got {tuple(hidden.shape)} {hidden.dtype} "
            f"and {tuple(weight.shape)} {weight.dtype}"
        )
    if targets.shape != hidden.shape[:1] or targets.dtype != torch.int64 or not len(targets):
        raise ConfigError(
            f"targets must be one int64 a token and at least one, got {tuple(targets.shape)} {targets.dtype} "
            f"for {len(hidden)} tokens"
        )
    rows = max(1, chunk_bytes // (len(weight) * weight.element_size()))
    loss: Tensor = _LinearCrossEntropy.apply(hidden, weight, targets, rows)
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, rows: int) -> Tensor:
        wanted = any(ctx.needs_input_grad[:2])
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grad_weight = torch.zeros_like(weight) if wanted else None
        total = hidden.new_zeros(())
        buffer = hidden.new_empty(min(rows, len(hidden)), len(weight))
        for start in range(0, len(hidden), rows):
            chunk, wanted_words = hidden[start : start + rows], targets[start : start + rows, None]
            logits = buffer[: len(chunk)]
            for word in range(0, len(weight), WORDS):
                torch.mm(chunk, weight[word : word + WORDS].T, out=logits[:, word : word + WORDS])
            correct = logits.gather(1, wanted_words)
            highest = logits.amax(1, keepdim=True)
            probabilities = torch.softmax(logits, 1, out=logits)
            # The largest p is 1 / sum(exp(z - highest)): log-sum-exp needs no exponentials of its own. Two vectorised
            # maxima are faster than one that also says where it is.
            total += (highest - probabilities.amax(1, keepdim=True).log() - correct).sum()
            if grad_hidden is not None and grad_weight is not None:
                probabilities.scatter_add_(1, wanted_words, probabilities.new_full(wanted_words.shape, -1.0))
                torch.mm(probabilities, weight, out=grad_hidden[start : start + rows])
                grad_weight.addmm_(probabilities.T, chunk)
        if grad_hidden is not None and grad_weight is not None:
            ctx.save_for_backward(grad_hidden.div_(len(hidden)), grad_weight.div_(len(hidden)))
        return total / len(hidden)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad * grad_hidden, grad * grad_weight, None, None
