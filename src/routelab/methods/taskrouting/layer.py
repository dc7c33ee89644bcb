"""The mathematics of task-expert routing (arXiv 2606.14398, section 6.2): which experts are a task's, and two losses.

Shapes: N tokens, E experts, k experts chosen per token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from routelab.errors import ConfigError


def expert_of_task(task: int, num_experts: int, mapping: Sequence[int] | None = None) -> int:
    """Return the expert of a task: ``mapping[task]``, or ``task mod E`` without a mapping.

    Raises:
        ConfigError: the task is negative or beyond the mapping, or its expert does not exist.
    """
    return experts_of_task(task, num_experts, size=1, mapping=None if mapping is None else [(e,) for e in mapping])[0]


def experts_of_task(
    task: int, num_experts: int, *, size: int, mapping: Sequence[Sequence[int]] | None = None
) -> tuple[int, ...]:
    """Return the group of experts of a task: ``mapping[task]``, or ``m = size`` neighbours without a mapping.

    Without a mapping task *t* owns the experts ``(t·m + i) mod E``, ``i = 0 ... m-1``: groups do not overlap while
    ``(t + 1)·m ≤ E``, and ``m = 1`` is the paper's ``t mod E``.

    Raises:
        ConfigError: the task is negative or beyond the mapping, or an expert of it does not exist.
    """
    if task < 0:
        raise ConfigError(f"tasks are numbered from 0, got {task}")
    if mapping is None:
        return tuple((task * size + i) % num_experts for i in range(min(size, num_experts)))
    if task >= len(mapping):
        raise ConfigError(f"the mapping names the experts of {len(mapping)} tasks and has none for task {task}")
    experts = tuple(mapping[task])
    absent = [expert for expert in experts if not 0 <= expert < num_experts]
    if absent:
        raise ConfigError(
            f"the mapping sends task {task} to expert {absent[0]}; there are experts 0 to {num_experts - 1}"
        )
    return experts


def membership(groups: Sequence[Sequence[int]], num_experts: int) -> Tensor:
    """Return which experts are whose, bool ``[tasks, E]``: true where the expert is in the task's group."""
    member = torch.zeros(len(groups), num_experts, dtype=torch.bool)
    for task, experts in enumerate(groups):
        member[task, list(experts)] = True
    return member


def load_balance_loss(logits: Tensor, indices: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the load-balancing loss of one router (Switch; section 6.2).

    ``E · Σ_e mean_x(p_xe) · mean_x(z_xe)`` with ``p = softmax(logits)`` and ``z_xe = 1`` where token *x* visits expert
    *e*. It is smallest, and equal to ``k``, where both means are uniform. The gradient reaches ``logits`` through
    ``p`` alone.

    Args:
        logits: ``[N, E]``, any floating dtype; computed in float32, or float64 where they are.
        indices: the chosen experts, integers ``[N]`` or ``[N, k]``.
        mask: ``[N]``, nonzero where a token counts; None counts all.

    Returns:
        A scalar; zero where no token counts.
    """
    probabilities = torch.softmax(logits, dim=-1, dtype=_wide(logits))
    chosen = F.one_hot(indices.reshape(len(logits), -1), logits.shape[-1]).sum(1).to(probabilities)
    counts = torch.ones(len(logits), device=logits.device) if mask is None else mask.ne(0)
    share = counts.to(probabilities) / counts.sum().clamp(min=1)
    return logits.shape[-1] * torch.dot(share @ probabilities, share @ chosen)


def task_router_loss(logits: Tensor, expert_of_token: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the task-router loss of one router (section 6.2): ``-mean_x log Σ_{e in S_x} softmax(logits_x)_e``.

    ``S_x`` holds the experts of token *x*'s task. With one expert it is the paper's loss, the cross-entropy of the
    router's logits against that expert. With several, the router is asked to stay inside the group and not how to
    divide the token within it.

    Args:
        logits: ``[N, E]``, any floating dtype; computed in float32, or float64 where they are.
        expert_of_token: integers ``[N]``, the expert; or bool ``[N, E]``, true for the experts of ``S_x``.
        mask: ``[N]``, nonzero where a token counts; None counts all. A token that does not may hold anything.

    Returns:
        A scalar, the mean over the tokens that count; zero where there is none.
    """
    log_probabilities = torch.log_softmax(logits, dim=-1, dtype=_wide(logits))
    counts = torch.ones(len(logits), dtype=torch.bool, device=logits.device) if mask is None else mask.ne(0)
    if expert_of_token.dtype == torch.bool:
        inside = expert_of_token | ~counts[:, None]  # an empty set has log 0, whose gradient is not a number
        losses = -log_probabilities.masked_fill(~inside, -torch.inf).logsumexp(-1)
    else:
        losses = -log_probabilities.gather(-1, expert_of_token.masked_fill(~counts, 0)[:, None]).squeeze(-1)
    return torch.where(counts, losses, 0).sum() / counts.sum().clamp(min=1)


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
