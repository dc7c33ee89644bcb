"""Theorem 6.1 and Proposition 1 of WISE (arXiv 2609.27373) on a real trajectory.

The theorem speaks of a limit that a finite trajectory does not show. Here the last step stands in for it, and every
number is of that stand-in: the margin Δ_q of the last mass (eq. 13), the contraction β of its movements, the constant
L C that makes ``|r^(t) - r^(T)|∞ ≤ L C βᵗ`` true of all steps, and the bound on the step of stabilisation that follows
(eq. 16). Proposition 1 is the motion of the hidden states after their unit's support has come to rest.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.hosts.recurrent.model import RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.discovery import Seen, settled
from routelab.methods.wise.engine import running
from routelab.methods.wise.layer import block_support, support_margin
from routelab.methods.wise.record import Record

#: Movements below this are rounding of float32 masses and say nothing about contraction.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Margins:
    """One number per unit with a real query, ``[units]``, in the order core block, row, head, query block.

    Attributes:
        margin: Δ_q of the last step's mass. beta: fitted contraction; NaN with fewer than two movements above rounding.
        observed: the first step from which the support stays what it is at the last.
        bound: T_S of eq. 16; infinite where the mass does not contract or the margin is zero.
        motion: ``|H^(T) - H^(t)| / |H^(T)|`` of the unit's tokens, t the observed step: how far the states moved on.
        certified: the first step at which the margin rule calls the unit settled; 0 where it never does.
        violated: a certified unit whose support was another one at some later step.
        steps: T.
    """

    margin: Tensor
    beta: Tensor
    observed: Tensor
    bound: Tensor
    motion: Tensor
    certified: Tensor
    violated: Tensor
    steps: int

    @property
    def violation_rate(self) -> float:
        """Units called settled whose support changed after all, as a share of those called settled; NaN without any."""
        called = self.certified > 0
        return (self.violated.sum() / called.sum()).item() if bool(called.any()) else math.nan

    def summary(self) -> dict[str, float | int]:
        """Return medians and shares over units as plain numbers."""
        finite = self.bound.isfinite()
        slack = (self.bound - self.observed)[finite]
        return {
            "units": len(self.margin),
            "steps": self.steps,
            "margin_median": self.margin.median().item(),
            "beta_median": self.beta.nanmedian().item(),
            "contracting": (self.beta < 1).double().mean().item(),
            "observed_median": self.observed.double().median().item(),
            "bound_finite": finite.double().mean().item(),
            "bound_holds": (self.observed <= self.bound).double().mean().item(),
            "bound_slack_median": slack.median().item() if len(slack) else math.nan,
            "motion_median": self.motion.median().item(),
            "still_moving": (self.motion > 0.01).double().mean().item(),
            "certified": (self.certified > 0).double().mean().item(),
            "violation_rate": self.violation_rate,
        }


def measure_margins(
    model: RecurrentForCausalLM, input_ids: Tensor, config: WISEConfig | None = None, **inputs: Any
) -> Margins:
    """Run the host with full attention and measure every unit.

    Args:
        model: the host; what is attached to it does not matter.
        input_ids: ``[B, S]``. inputs: the rest of the model's forward: ``attention_mask``, ``num_steps``, ``seed``.
        config: block size, mass and causal form count; the defaults are the paper's.

    Raises:
        EvaluationError: fewer than two steps.
    """
    config = WISEConfig() if config is None else config
    full = WISEConfig(condition="full", block_size=config.block_size, mass=config.mass, causal=config.causal)
    with torch.no_grad(), running(model, full, record=True) as engine:
        states = model(input_ids, output_states=True, **inputs).states
    record = engine.records[0]
    mask = inputs.get("attention_mask")
    mask = torch.ones_like(input_ids) if mask is None else mask
    return margins(record, states, mask, config)


@torch.no_grad()
def margins(record: Record, states: Tensor, mask: Tensor, config: WISEConfig) -> Margins:
    """Return the margins of a recorded full trajectory; ``states [T, B, S, d]`` of the core, ``mask [B, S]``."""
    steps = sorted(record.masses)
    if len(steps) < 2 or steps != list(range(1, len(steps) + 1)) or len(states) != len(steps):
        raise EvaluationError(f"margins need the masses and states of two or more steps, all of them; got {steps}")
    masses = [record.masses[step] for step in steps]
    allowed = record.allowed
    units = allowed.any(-1).expand(masses[0].shape[:-1])
    supports = torch.stack([block_support(mass, allowed, config.mass) for mass in masses])
    differs = (supports != supports[-1]).any(-1)[:, units]
    observed = last_true(differs) + 1
    margin = support_margin(masses[-1], allowed, config.mass)[units]
    moves = torch.stack([(b - a).abs().amax(-1)[units] for a, b in itertools.pairwise(masses)])
    beta = fitted_contraction(moves)
    away = torch.stack([(mass - masses[-1]).abs().amax(-1)[units] for mass in masses])
    certified, violated = _certified(masses, supports, record, config, units)
    moved = _moved(states, mask, record, config)
    motion = moved[:, None, :, None].expand(-1, *masses[0].shape[:-1])[:, units]
    motion = motion.gather(0, observed[None] - 1)[0]
    bound = stabilisation_bound(away, beta, margin)
    return Margins(margin, beta, observed, bound, motion, certified, violated, len(steps))


def fitted_contraction(moves: Tensor) -> Tensor:
    """Return β of ``moves [T-1, units]``, over all movements above rounding, ``[units]``; NaN with fewer than two."""
    counts = moves > ROUNDING
    times = torch.arange(len(moves), dtype=torch.float64, device=moves.device)[:, None].expand_as(moves)
    number = counts.sum(0)
    logs = moves.double().clamp_min(ROUNDING).log().masked_fill(~counts, 0.0)
    times = times.masked_fill(~counts, 0.0)
    mean_time, mean_log = times.sum(0) / number, logs.sum(0) / number
    centred = (times - mean_time).masked_fill(~counts, 0.0)
    slope = (centred * (logs - mean_log)).sum(0) / centred.square().sum(0)
    return torch.where(number > 1, slope.exp(), torch.nan)


def stabilisation_bound(away: Tensor, beta: Tensor, margin: Tensor) -> Tensor:
    """Return T_S of eq. 16 with T_0 = 1, ``[units]`` float64.

    ``L C`` is the smallest constant with ``away^(t) ≤ L C βᵗ`` at every step, so the bound holds of this trajectory
    wherever it is finite; what it shows is how tight it is.

    Args:
        away: ``[T, units]``, ``|r^(t) - r^(T)|∞`` of steps 1 … T. beta, margin: ``[units]``.
    """
    steps = torch.arange(1, len(away) + 1, dtype=torch.float64, device=away.device)[:, None]
    constant = (away.double().log() - steps * beta.log()).amax(0)  # log L C; -inf where the mass never moved
    needed = ((constant - margin.log()) / -beta.log()).floor() + 1
    bound = torch.where(constant < margin.log(), 1.0, needed.clamp_min(1.0))
    still = away.amax(0) < margin
    contracts = (beta < 1) & (margin > 0)
    return torch.where(still, 1.0, torch.where(contracts, bound, torch.inf))


def last_true(flags: Tensor) -> Tensor:
    """Return the 1-based index of the last True along the first dimension, 0 where there is none."""
    index = torch.arange(1, len(flags) + 1, device=flags.device).view(-1, *[1] * (flags.dim() - 1))
    return (flags * index).amax(0)


def _certified(
    masses: list[Tensor], supports: Tensor, record: Record, config: WISEConfig, units: Tensor
) -> tuple[Tensor, Tensor]:
    """When the margin rule would call each unit settled, and whether its support changed later all the same."""
    seen = Seen(config.window)
    first = torch.zeros(units.shape, dtype=torch.long, device=units.device)
    violated = torch.zeros_like(units)
    for step, mass in enumerate(masses, start=1):
        seen.note(step, mass, record.allowed, config.mass)
        called = settled(seen, record.allowed, config.mass)
        if isinstance(called, Tensor):
            new = called & (first == 0)
            first = torch.where(new, step, first)
            changes = (supports[step - 1 :] != supports[step - 1]).any(-1).any(0)
            violated = torch.where(new, changes, violated)
    return first[units], violated[units]


def _moved(states: Tensor, mask: Tensor, record: Record, config: WISEConfig) -> Tensor:
    """``[T, B, Qb]``: how far the states of each query block still have to go to the last step's, relative to it."""
    places = (mask.long().cumsum(1) - 1).clamp_min(0) // config.query_block
    width = record.query_blocks.shape[1]
    real = mask.double()

    def total(x: Tensor) -> Tensor:
        squares = x.double().square().sum(-1) * real
        blocks = places.expand(squares.shape)
        return squares.new_zeros(*squares.shape[:-1], width).scatter_add(-1, blocks, squares).sqrt()

    return total(states - states[-1]) / total(states[-1]).clamp_min(ROUNDING)
