"""Supports, working sets, controls, nulls and margins, on block masses alone (arXiv 2609.27373, sections 5, 6, A, B).

One *unit* is a (core block, head, query block). A mass ``r [..., Qb, Kb]`` holds, per unit, the attention mass in each
key block (eq. 5); ``allowed [..., Qb, Kb]`` marks the admissible blocks: not after the query block, not padding. A
support is bool ``[..., Qb, Kb]``, inside ``allowed``, and never empty where a unit has an admissible block. Sums are
float64, so that they do not depend on the order of summation by more than ``SLACK``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

#: Far above the rounding of a float64 sum of masses, far below any mass that float32 attention can tell apart.
SLACK = 1e-12
#: A moved distance below this counts as this: zero has no logarithm.
_STILL = 1e-12


def mass_support(mass: Tensor, allowed: Tensor, target: Tensor | float) -> Tensor:
    """Return the fewest allowed blocks whose mass reaches ``target`` (eq. 6, ``argmin |B| s.t. Σ_{b∈B} r_b ≥ target``).

    Blocks are taken by falling mass, of equal ones the lower first, until the sum is ``target`` or more; at least one
    is taken, and all where the sum never gets there.

    Args:
        mass: ``[..., Qb, Kb]``. allowed: bool, broadcastable to it. target: a number, or ``[..., Qb]``.
    """
    allowed = allowed.expand_as(mass)
    order = _descending(mass, allowed)
    ranked = mass.double().masked_fill(~allowed, 0.0).gather(-1, order)
    before = pad(ranked.cumsum(-1)[..., :-1], (1, 0))
    goal = target[..., None] if isinstance(target, Tensor) else target
    taken = before < goal
    taken[..., 0] = True
    return torch.zeros_like(allowed).scatter(-1, order, taken) & allowed


def block_support(mass: Tensor, allowed: Tensor, share: float) -> Tensor:
    """Return the support of one step: the fewest blocks with ``share`` (η) of the unit's mass; all for ``share`` 1."""
    if share == 1:
        return allowed.expand_as(mass).clone()
    return mass_support(mass, allowed, share * total_mass(mass, allowed))


def top_support(score: Tensor, allowed: Tensor, count: Tensor) -> Tensor:
    """Return the ``count [..., Qb]`` allowed blocks of highest ``score`` (eq. 22), of equal ones the lower first."""
    allowed = allowed.expand_as(score)
    order = _descending(score, allowed)
    taken = torch.arange(score.shape[-1], device=score.device) < count[..., None]
    return torch.zeros_like(allowed).scatter(-1, order, taken) & allowed


def mass_matched(first_mass: Tensor, allowed: Tensor, working_set: Tensor) -> Tensor:
    """Return the best blocks of step 1 with as much of its mass as the working set has there (eq. 20, 21)."""
    return mass_support(first_mass, allowed, total_mass(first_mass, working_set) - SLACK)


def sink_local_scores(key_blocks: int, device: torch.device | None = None) -> Tensor:
    """Return ``[Kb]`` scores that rank the first block highest and then the latest."""
    scores = torch.arange(key_blocks, device=device)
    scores[0] = key_blocks
    return scores


def random_scores(seed: int, block: int, heads: int, query_blocks: Tensor, key_blocks: int) -> Tensor:
    """Return int64 scores ``[B, heads, Qb, Kb]`` that are random but a function of (seed, core block, head, query
    block, key block) alone: a row gets the same ones alone, in a batch, and token by token.

    ``query_blocks [B, Qb]``: the position of each query block on the row's own grid.
    """
    device = query_blocks.device
    state = _mix(torch.tensor(seed, device=device))
    state = _mix(state ^ block)
    state = _mix(state ^ torch.arange(heads, device=device))[:, None]
    state = _mix(state ^ query_blocks[:, None])
    return _mix(state[..., None] ^ torch.arange(key_blocks, device=device))


def total_mass(mass: Tensor, support: Tensor) -> Tensor:
    """Return ``Σ_{b∈support} r_b``, ``[..., Qb]`` float64."""
    return mass.double().masked_fill(~support, 0.0).sum(-1)


def overlap(first: Tensor, second: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the sizes of intersection and union of two sets of blocks, summed over ``dims``; their ratio is the
    Jaccard of eq. 24."""
    return (first & second).sum(dims), (first | second).sum(dims)


def support_margin(mass: Tensor, allowed: Tensor, share: float) -> Tensor:
    """Return Δ_q of eq. 13, ``[..., Qb]`` float64: how far the mass may move before its support may change.

    With ``k`` the size of the support and ``r_(s)`` the s-th largest share of the mass,

        Δ = min{ (r_(k) - r_(k+1)) / 2,  (η - Σ_{s<k} r_(s)) / (k - 1),  (Σ_{s≤k} r_(s) - η) / k };

    the first term is left out where every admissible block is in the support, the second for k = 1. Any mass that
    differs by less than Δ in every block has the same support (theorem 6.1). With η = 1 the support is every admissible
    block whatever the mass, and Δ infinite. Units without a block have margin 0.
    """
    allowed = allowed.expand_as(mass)
    if share == 1:
        return torch.where(allowed.any(-1), torch.inf, 0.0).double()
    total = total_mass(mass, allowed)
    shares = mass.double().masked_fill(~allowed, -torch.inf) / total.clamp_min(_STILL)[..., None]
    size = block_support(mass, allowed, share).sum(-1)
    ranked = shares.sort(-1, descending=True).values
    ranked = pad(ranked, (0, 1), value=-torch.inf)
    sums = pad(ranked.masked_fill(ranked.isneginf(), 0.0).cumsum(-1), (1, 0))

    last = (size - 1).clamp_min(0)[..., None]
    rank = (ranked.gather(-1, last) - ranked.gather(-1, last + 1)).squeeze(-1) / 2
    below = (share - sums.gather(-1, last).squeeze(-1)) / (size - 1)
    above = (sums.gather(-1, last + 1).squeeze(-1) - share) / size
    margin = torch.minimum(rank, above).minimum(torch.where(size > 1, below, torch.inf))
    return torch.where(size > 0, margin.clamp_min(0.0), 0.0)


def contraction(distances: Tensor) -> Tensor:
    """Return the β of ``distance_t ≈ C βᵗ``, by least squares on the logarithm.

    ``distances [n, ...]``, n ≥ 2 consecutive steps: how far the mass moved in each. Returns ``[...]`` float64.
    """
    logs = distances.double().clamp_min(_STILL).log()
    times = torch.arange(len(distances), dtype=torch.float64, device=distances.device)
    times = (times - times.mean()).view(-1, *[1] * (logs.dim() - 1))
    return ((times * logs).sum(0) / times.square().sum()).exp()


def remaining_drift(distance: Tensor, beta: Tensor) -> Tensor:
    """Return ``Σ_{s≥1} distance βˢ = distance β / (1 - β)``: an estimate of how far the mass will still move; infinite
    where it does not contract (β ≥ 1)."""
    return torch.where(beta < 1, distance.double() * beta / (1 - beta), torch.inf)


def _descending(score: Tensor, allowed: Tensor) -> Tensor:
    """Ranks of the blocks, allowed ones first, each group by falling score; equal scores keep their order."""
    lowest = -torch.inf if score.is_floating_point() else torch.iinfo(score.dtype).min
    return score.masked_fill(~allowed, lowest).argsort(dim=-1, descending=True, stable=True)


def _mix(state: Tensor) -> Tensor:
    """One round of a 64-bit finaliser on wrapping int64 (xor-shift, multiply): each input bit moves all output bits."""
    state = state + 0x1E3779B97F4A7C15
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        state = (state ^ (state >> shift & (1 << 64 - shift) - 1)) * factor
    return state
