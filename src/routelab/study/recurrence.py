"""What a depth-recurrent host does with one prompt, step by step: where its last token looks, and what still moves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from routelab.hosts.recurrent.core import CoreAttention, CoreCall
from routelab.methods.wise.config import WISEConfig
from routelab.study.full_run import Observer, run_full
from routelab.study.working_set import block_density, jaccard
from routelab.study.working_set_masses import MassObserver

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Tokens named at each step.
SHOWN = 4


@dataclass(frozen=True)
class RecurrentStep:
    """One step of the core under full attention.

    Attributes:
        density: share of the admissible blocks that the rolling working set of this step keeps.
        stability: its Jaccard to that of the step before; None at the first.
        change: ``‖h - h'‖ / ‖h'‖`` of the last token's state against the step before; None at the first.
        looks: what the last token attends to most, ``(position, token, weight)``, mean over core blocks and heads.
    """

    step: int
    density: float
    stability: float | None
    change: float | None
    looks: list[tuple[int, str, float]]


@dataclass(frozen=True)
class RecurrenceTrace:
    """All steps of one prompt."""

    prompt: str
    tokens: int
    block_size: int
    discovery_steps: int
    steps: list[RecurrentStep]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


class LastToken(Observer):
    """Collects the attention weights of the last query of each row, per step: ``[T, S]``, one prompt at a time."""

    def __init__(self, inner: CoreAttention | None = None) -> None:
        super().__init__(inner)
        self.weights: list[list[Tensor]] = []

    def open(self, call: CoreCall) -> None:
        self.weights = []

    def note(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
        if step > len(self.weights):
            self.weights.append([])
        heads = query.shape[1]
        last = query[0, :, -1].float()
        keys = key[0].float().repeat_interleave(heads // key.shape[1], dim=0)
        scores = (keys @ last[..., None]).squeeze(-1) * query.shape[-1] ** -0.5
        self.weights[-1].append(scores.softmax(-1).mean(0))

    def mean(self) -> Tensor:
        """Return the weights ``[T, S]``, mean over core blocks and heads."""
        return torch.stack([torch.stack(blocks).mean(0) for blocks in self.weights])


def trace_recurrence(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    config: WISEConfig | None = None,
    *,
    num_steps: int = 32,
    seed: int = 0,
) -> RecurrenceTrace:
    """Run one rendered prompt with full attention; ``config`` says what a working set would be (eq. 23).

    Raises:
        HostError: the model is no depth-recurrent host. EvaluationError: fewer than two steps.
    """
    config = WISEConfig() if config is None else config
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    last = LastToken()
    masses = MassObserver(last, block_size=config.block_size)
    states = run_full(model, masses, ids, num_steps=num_steps, seed=seed, output_states=True)
    assert states is not None
    found = masses.masses()
    sets = found.rolling_sets(config.mass, config.window)
    stability = [None, *jaccard(sets[:-1], sets[1:], (1, 3, 4, 5))[:, 0].tolist()]
    ends = states[:, 0, -1].double()
    change = [None, *((ends[1:] - ends[:-1]).norm(dim=-1) / ends[:-1].norm(dim=-1)).tolist()]
    weights = last.mean()
    steps = []
    for index in range(num_steps):
        top = weights[index].topk(min(SHOWN, ids.shape[1]))
        looks = [
            (place, tokenizer.decode([int(ids[0, place])]), weight)
            for place, weight in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ]
        (density,) = block_density(sets[index], found.allowed)
        steps.append(RecurrentStep(index + 1, density, stability[index], change[index], looks))
    return RecurrenceTrace(text, ids.shape[1], config.block_size, config.discovery_steps, steps)
