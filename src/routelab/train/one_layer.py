"""Training of the one-layer host on sentences with tasks: next-token cross-entropy plus one auxiliary router loss.

Three things make it fast. A batch holds sentences of one length, so nothing is padded.
The output layer, most of the work, runs in chunks that stay in the processor's cache (``ops.linear_cross_entropy``).
And the embedding of an entity, which only the few steps with one of its sentences move, gets a larger learning rate
than the weights that every step moves; with one rate for all, facts take several times as many epochs.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from routelab.errors import ConfigError, TrainingError, closest
from routelab.hosts.one_layer import OneLayerForCausalLM
from routelab.methods.taskrouting.layer import expert_of_task, load_balance_loss, task_router_loss
from routelab.ops.linear_cross_entropy import linear_cross_entropy

LOSSES = ("ce", "load_balance", "task_router")


@dataclass(frozen=True)
class OneLayerTraining:
    """How a one-layer host is trained.

    Args:
        loss: ``"ce"``; ``"load_balance"`` or ``"task_router"``, which add ``coefficient`` times that loss.
        coefficient: its weight.
        epochs: passes over the sentences.
        batch_size: sentences a step, at most.
        learning_rate: of AdamW (betas 0.9 and 0.999, no weight decay), reached after ``warmup`` of all steps and then
            falling linearly to zero.
        embedding_scale: factor on the learning rate of the token embeddings.
        warmup: share of the steps.
        seed: of the order of the sentences.

    Raises:
        ConfigError: a value is out of its domain.
    """

    loss: str = "ce"
    coefficient: float = 0.0
    epochs: int = 6
    batch_size: int = 32
    learning_rate: float = 2e-3
    embedding_scale: float = 200.0
    warmup: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ConfigError(f"unknown loss {self.loss!r}{closest(self.loss, LOSSES)}")
        if min(self.epochs, self.batch_size) < 1:
            raise ConfigError(f"epochs and batch_size must be at least 1, got {self.epochs} and {self.batch_size}")
        if not (self.learning_rate > 0 and self.embedding_scale > 0 and self.coefficient >= 0 and 0 <= self.warmup < 1):
            raise ConfigError(
                "learning_rate and embedding_scale must be positive, coefficient not negative, warmup in [0, 1); got "
                f"{self.learning_rate}, {self.embedding_scale}, {self.coefficient} and {self.warmup}"
            )

    def rate(self, progress: float) -> float:
        """Return the factor on the learning rate after ``progress`` (0 to 1) of all steps."""
        return min(1.0, progress / self.warmup) * (1 - progress) if self.warmup else 1 - progress


def train_one_layer(
    model: OneLayerForCausalLM,
    sequences: Sequence[Sequence[int]],
    tasks: Sequence[int],
    settings: OneLayerTraining,
    on_epoch: Callable[[dict[str, float]], None] = lambda _: None,
) -> list[dict[str, float]]:
    """Train ``model`` in place; return one row per epoch.

    A row holds ``epoch``, ``cross_entropy`` and ``auxiliary`` (means over the epoch's tokens and steps), ``tokens``
    predicted in the epoch, ``seconds`` it took, and ``router_gradient``: the norm of the gradient that cross-entropy
    alone gives the router on the epoch's first batch; zero with a hard gate, and without a router.

    Args:
        sequences: token ids from the begin to the end token; every one after the first is predicted.
        tasks: the task of each sequence.

    Raises:
        TrainingError: no sequences, one without a word, or a loss that is no longer finite.
    """
    if not sequences or len(sequences) != len(tasks) or min(map(len, sequences)) < 2:
        raise TrainingError(
            f"training needs sequences of two tokens or more, and a task for each; got {len(sequences)} sequences and "
            f"{len(tasks)} tasks"
        )
    rng = random.Random(settings.seed)
    epochs = [batches(sequences, settings.batch_size, rng) for _ in range(settings.epochs)]
    optimizer, done, steps = make_optimizer(model, settings), 0, sum(map(len, epochs))
    model.train()
    history = []
    for epoch, order in enumerate(epochs, start=1):
        start, entropy, auxiliary, tokens = time.perf_counter(), 0.0, 0.0, 0
        gradient = router_gradient(model, *gather(sequences, tasks, order[0]))
        for batch in order:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * settings.rate((done + 1) / (steps + 1))
            ids, labels = gather(sequences, tasks, batch)
            own, added = losses(model, ids, labels, settings.loss)
            optimizer.zero_grad()
            (own + settings.coefficient * added).backward()
            optimizer.step()
            done += 1
            count = ids[:, 1:].numel()
            entropy, tokens = entropy + own.item() * count, tokens + count
            auxiliary += added.item() / len(order)
        if not math.isfinite(entropy + auxiliary):
            raise TrainingError(f"the loss is no longer finite in epoch {epoch}; lower learning_rate")
        history.append(
            {
                "epoch": epoch,
                "cross_entropy": entropy / tokens,
                "auxiliary": auxiliary,
                "router_gradient": gradient,
                "tokens": tokens,
                "seconds": time.perf_counter() - start,
            }
        )
        on_epoch(history[-1])
    model.eval()
    return history


def make_optimizer(model: OneLayerForCausalLM, settings: OneLayerTraining, **options: Any) -> torch.optim.AdamW:
    """Return AdamW with two groups, token embeddings and everything else; ``peak`` is a group's full rate."""
    embedding = model.model.embed_tokens.weight
    others = [parameter for parameter in model.parameters() if parameter is not embedding]
    groups = [
        {"params": [embedding], "peak": settings.learning_rate * settings.embedding_scale},
        {"params": others, "peak": settings.learning_rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=0.0, **{"fused": True, **options})


def batches(sequences: Sequence[Sequence[int]], size: int, rng: random.Random) -> list[list[int]]:
    """Return the indices of all sequences in random batches of one length each, at most ``size`` and evenly filled."""
    by_length: dict[int, list[int]] = {}
    for index in rng.sample(range(len(sequences)), len(sequences)):
        by_length.setdefault(len(sequences[index]), []).append(index)
    found = []
    for group in by_length.values():
        parts = math.ceil(len(group) / size)
        found += [group[part::parts] for part in range(parts)]
    rng.shuffle(found)
    return found


def gather(sequences: Sequence[Sequence[int]], tasks: Sequence[int], batch: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the token ids ``[B, S]`` and the tasks ``[B]`` of a batch of one length."""
    return torch.tensor([sequences[index] for index in batch]), torch.tensor([tasks[index] for index in batch])


def losses(model: OneLayerForCausalLM, ids: Tensor, tasks: Tensor, loss: str) -> tuple[Tensor, Tensor]:
    """Return the mean cross-entropy of all next tokens of ``ids [B, S]``, and the auxiliary loss (zero for ``"ce"``).

    The auxiliary losses count the words of the sentences; the begin token, which is the same in every task, has none.
    """
    outputs = model.model(ids[:, :-1])
    hidden = outputs.last_hidden_state.flatten(0, 1)
    entropy = linear_cross_entropy(hidden, model.lm_head.weight, ids[:, 1:].flatten())
    if loss == "ce" or outputs.router_logits is None:
        return entropy, entropy.new_zeros(())
    (logits,) = outputs.router_logits
    counts = torch.ones_like(ids[:, :-1])
    counts[:, 0] = 0
    if loss == "load_balance":
        return entropy, load_balance_loss(logits, logits.argmax(-1), counts.flatten())
    experts = torch.tensor([expert_of_task(int(task), logits.shape[-1]) for task in tasks])
    return entropy, task_router_loss(logits, experts[:, None].expand_as(counts).flatten(), counts.flatten())


def router_gradient(model: OneLayerForCausalLM, ids: Tensor, tasks: Tensor) -> float:
    """Return the norm of the gradient of the cross-entropy alone with respect to the router; 0 where there is none."""
    if model.model.router is None:
        return 0.0
    entropy, _ = losses(model, ids, tasks, "ce")
    (gradient,) = torch.autograd.grad(entropy, [model.model.router.weight], allow_unused=True)
    return 0.0 if gradient is None else float(gradient.norm())
