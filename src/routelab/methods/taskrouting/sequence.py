"""Routing a whole sequence by one decision (arXiv 2606.14398, section 8.2), and where the decision stays.

A router is linear, so routing by the mean state of the prompt's tokens is routing by the mean of their logits. In each
layer::

    r = mean over the prompt's real tokens of W_r h        (decided at prefill)

and every token of the sequence, in the prompt and after it, takes its experts and weights from ``r``.

The prompt is what ``prompt_mask`` marks; without it, what comes before a row's first label; without labels, all real
tokens of a call that starts a sequence. So no reply is routed by its own tokens. Decoding finds ``r`` on the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from routelab.errors import HostError, TrainingError
from routelab.hosts.cache_rows import RowModes, remember, require_followable, row_modes
from routelab.hosts.router_calls import RouterCall
from routelab.hosts.routing import select_experts

_IGNORED = -100


@dataclass(frozen=True)
class RowLogits(RowModes):
    """The decision of every row of a cache: ``logits`` ``[B, layers, E]``. ``modes`` only counts the rows."""

    logits: Tensor | None = None

    def select(self, rows: Tensor | Sequence[int]) -> RowLogits:
        assert self.logits is not None
        index = torch.as_tensor(rows, device=self.logits.device)
        return RowLogits((0,) * len(index), logits=self.logits[index])


class SequenceDecision:
    """The decision of the call in progress: how to pool, or what was decided before."""

    def __init__(self) -> None:
        self.weights: Tensor | None = None
        self.kept: Tensor | None = None
        self.decided: dict[int, Tensor] = {}

    def begin(self, call: RouterCall, *, training: bool) -> None:
        """Prepare for a call: take the decision off its cache, or say which tokens are pooled.

        Raises:
            HostError: the cache holds tokens and no decision, the row holds several documents, or a prompt is empty.
            TrainingError: a training call says neither by ``prompt_mask`` nor by labels what the prompt is.
        """
        self.weights, self.kept, self.decided = None, None, {}
        if call.continues:
            held = row_modes(call.cache)
            if not isinstance(held, RowLogits) or held.logits is None or len(held.logits) != call.shape[0]:
                raise HostError(
                    "the cache holds tokens but no routing decision for its rows: it was not filled by this attached "
                    "model, or its rows were changed; run the whole prompt through it in one call"
                )
            self.kept = held.logits
            return
        if call.packed:
            raise HostError("routing='sequence' decides once a row; a row of several packed documents needs several")
        pooled = _prompt(call, training)
        counts = pooled.sum(-1, keepdim=True)
        if bool(counts.eq(0).any()):
            raise HostError("routing='sequence' has a row without a prompt token to decide on")
        self.weights = pooled / counts

    def pool(self, place: int, logits: Tensor) -> Tensor:
        """Return the logits ``[B·n, E]`` by which the tokens are routed at the layer with this place in the list."""
        if self.kept is not None:
            rows = self.kept[:, place].to(logits.dtype)
        elif self.weights is not None:
            by_row = logits.reshape(*self.weights.shape, -1)
            wide = torch.promote_types(logits.dtype, torch.float32)
            rows = torch.einsum("bn,bne->be", self.weights.to(wide), by_row.to(wide)).to(logits.dtype)
            self.decided[place] = rows.detach()
        else:
            raise HostError("routing='sequence' is decided in the model's own call; do not call its backbone alone")
        return rows.repeat_interleave(len(logits) // len(rows), dim=0)

    def keep(self, call: RouterCall) -> None:
        """Leave the decision on the cache that the call returns, if it returns one."""
        if call.cache_after is None or self.weights is None:
            return
        require_followable(call.cache_after)
        logits = torch.stack([self.decided[place] for place in sorted(self.decided)], dim=1)
        remember(call.cache_after, RowLogits((0,) * len(logits), logits=logits))


class SequenceLevel(nn.Module):
    """Behaviour mixed into a host's router class: its logits, pooled; then the host's own selection."""

    decision: SequenceDecision
    place: int
    top_k: int
    renormalise: bool
    float32_weights: bool

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.decision.pool(self.place, super().forward(hidden_states)[0])
        dtype = torch.float32 if self.float32_weights else hidden_states.dtype
        return select_experts(logits, top_k=self.top_k, renormalise=self.renormalise, dtype=dtype)


def _prompt(call: RouterCall, training: bool) -> Tensor:
    """Return float32 ``[B, n]``, 1 where a token belongs to the prompt."""
    given, labels, real = call.taken.get("prompt_mask"), call.labels, call.real()
    if given is not None:
        pooled = given.ne(0)
    elif labels is not None:
        pooled = labels.ne(_IGNORED).cumsum(-1).eq(0)
    elif training:
        raise TrainingError(
            "routing='sequence' decides on the prompt, and this training call does not say what it is; pass "
            "prompt_mask [rows, tokens], or labels that are -100 on it"
        )
    else:
        pooled = torch.ones(call.shape, dtype=torch.bool) if real is None else real
    pooled = pooled if real is None else pooled.to(real.device) & real
    return pooled.float()
