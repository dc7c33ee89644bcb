"""Cross-entropy of a linear output layer, written for reading: the specification of ``linear_cross_entropy``."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def linear_cross_entropy_reference(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return ``mean_n -log softmax(W h_n)[targets_n]``; all ``[N, V]`` logits are in memory at once."""
    return F.cross_entropy(hidden @ weight.T, targets)
