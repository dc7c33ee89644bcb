"""What a host does with router logits: softmax, top-k, renormalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from routelab.errors import HostError
from routelab.hosts.locate import Host


def select_experts(
    logits: Tensor, *, top_k: int, renormalise: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Choose experts from raw logits exactly as the supported hosts do.

    ``p = softmax(logits)`` in float32; the ``top_k`` largest are kept and, with ``renormalise``, divided by their sum.

    Args:
        logits: ``[tokens, experts]``.
        dtype: dtype of the returned weights.

    Returns:
        ``(logits, weights [tokens, top_k], indices [tokens, top_k])``, the triple every host's MoE block unpacks.
    """
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    weights, indices = torch.topk(probabilities, top_k, dim=-1)
    if renormalise:
        weights = weights / weights.sum(dim=-1, keepdim=True)
    return logits, weights.to(dtype), indices


def has_router_gradient(host: Host) -> bool:
    """Whether the language-model loss can train a host's routers.

    With ``top_k = 1`` and renormalised weights the one chosen weight is ``p / p = 1``: constant, so its derivative in
    the router logits is zero.
    """
    return not (host.top_k == 1 and host.renormalises)


def require_router_gradient(host: Host) -> None:
    """Refuse a host whose routers cannot learn from the language-model loss (:func:`has_router_gradient`).

    Raises:
        HostError: the host is of that kind.
    """
    if not has_router_gradient(host):
        raise HostError(
            f"the routers of this {host.model_type!r} host get no gradient: with top-1 routing and renormalised "
            "top-k probabilities the chosen weight is always 1. Use top_k >= 2, or a host whose norm_topk_prob is off"
        )
