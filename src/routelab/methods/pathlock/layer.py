"""The mathematics of Path-Lock experts (arXiv 2604.27201, section 3 and appendix B).

Shapes: B sequences, S tokens each, T = B*S tokens, d hidden size, r in {0, 1} the mode (0 no_think, 1 think).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from routelab.errors import ConfigError, HostError

Normalisation = Literal["example", "token"]


@dataclass(frozen=True)
class Plan:
    """Which expert serves which tokens in one forward; the same for every layer.

    ``single`` is the mode of all tokens. Where both modes occur it is None, and ``order [T]`` lists the tokens of
    no_think and then those of think, ``counts`` of each, and ``inverse [T]`` leads back.
    """

    single: int | None
    counts: tuple[int, int] = (0, 0)
    order: Tensor | None = None
    inverse: Tensor | None = None


def plan_rows(modes: Sequence[int], tokens: int, device: torch.device) -> Plan:
    """Return the plan of ``len(modes)`` sequences of ``tokens`` tokens, each with one mode."""
    if len(set(modes)) == 1:
        return Plan(modes[0])
    return plan_tokens(torch.tensor(modes)[:, None].expand(-1, tokens), device)


def plan_tokens(modes: Tensor, device: torch.device) -> Plan:
    """Return the plan of tokens with a mode each: ``modes [B, S]``, int64, on the CPU."""
    flat = modes.reshape(-1)
    think = int(flat.sum())
    if think in (0, flat.numel()):
        return Plan(int(think > 0))
    order = flat.argsort(stable=True)
    return Plan(None, (flat.numel() - think, think), order.to(device), order.argsort().to(device))


class PathLockedMLP(nn.Module):
    """Two MLPs of one decoder layer, of which every token visits the one of its mode.

    ``y_t = MLP_{r(t)}(x_t)``: section 3, with ``r`` constant over a sequence. A token costs one MLP, in training too:
    the tokens of a mode are gathered, go through its MLP in one call, and are scattered back. Where all tokens have one
    mode, nothing is moved, and the other MLP is not called, so that its gradients stay None.
    """

    def __init__(self, no_think: nn.Module, think: nn.Module) -> None:
        super().__init__()
        self.no_think, self.think = no_think, think
        self.plan: Plan | None = None

    @property
    def experts(self) -> tuple[nn.Module, nn.Module]:
        """The MLPs by mode index."""
        return self.no_think, self.think

    def forward(self, hidden: Tensor) -> Tensor:
        """Return ``[B, S, d]`` for ``hidden [B, S, d]``, any floating dtype.

        Raises:
            HostError: the MLP was called outside its layer, which knows the plan.
        """
        plan = self.plan
        if plan is None:
            raise HostError(
                "a path-locked MLP was called outside its decoder layer, so the mode of its tokens is unknown"
            )
        if plan.single is not None:
            output: Tensor = self.experts[plan.single](hidden)
            return output
        assert plan.order is not None
        assert plan.inverse is not None
        tokens = hidden.reshape(1, -1, hidden.shape[-1])
        parts = tokens.index_select(1, plan.order.to(hidden.device)).split(plan.counts, dim=1)
        outputs = [expert(part) for expert, part in zip(self.experts, parts, strict=True)]
        return torch.cat(outputs, dim=1).index_select(1, plan.inverse.to(hidden.device)).reshape(hidden.shape)


def normalised_loss(losses: Tensor, examples: Tensor, normalisation: Normalisation) -> Tensor:
    """Return the loss of N labelled tokens that belong to numbered examples (appendix B, equation 10 and its remark).

    ``example``: ``1/M sum_i 1/T_i sum_{t in i} l_it``, every one of the M examples weighs the same, whatever its
    length: the paper's analysis. ``token``: ``1/N sum_it l_it``, long (think) answers weigh more.

    Args:
        losses: ``[N]``, the negative log-likelihood of every labelled token.
        examples: int64 ``[N]``, which example it belongs to. Any numbers; packed or padded rows make no difference.

    Raises:
        ConfigError: no labelled token, shapes that differ, or another normalisation.
    """
    if losses.shape != examples.shape or losses.ndim != 1 or not losses.numel():
        raise ConfigError(f"losses {tuple(losses.shape)} and examples {tuple(examples.shape)} must be [N] alike, N > 0")
    if normalisation == "token":
        return losses.mean()
    if normalisation != "example":
        raise ConfigError(f"unknown normalisation {normalisation!r}; known: example, token")
    _, number, lengths = examples.unique(return_inverse=True, return_counts=True)
    return (losses / lengths[number].to(losses.dtype)).sum() / len(lengths)
