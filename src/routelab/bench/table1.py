"""Training of a Table 1 cell against the plain loop one would write first, on the same model, in one process.

Three contenders run the same epoch from the same weights with the same hyperparameters:

- ``ours``: :mod:`routelab.train.one_layer`.
- ``plain``: our batches; attention that materialises its weights, every expert under a mask over all tokens,
  ``F.cross_entropy`` over full logits, AdamW as it comes. Its losses must equal ours.
- ``padded``: the same loop on shuffled batches padded to their longest sentence, which is what one writes first.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from routelab.bench.timing import environment, interleaved, ratios, summary
from routelab.bench.window import Table
from routelab.data.knowledge import Knowledge, KnowledgeTokenizer, split
from routelab.errors import ConfigError
from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM
from routelab.train.one_layer import OneLayerTraining, batches, gather, losses, make_optimizer

Losses = list[float]


class Epoch(NamedTuple):
    """Everything that an epoch starts from; the contenders only read it."""

    model: OneLayerForCausalLM
    sequences: list[list[int]]
    tasks: list[int]
    settings: OneLayerTraining
    order: list[list[int]]


def bench_table1(
    knowledge: Knowledge,
    *,
    experts: int = 5,
    neurons: int = 256,
    hidden_size: int = 128,
    settings: OneLayerTraining | None = None,
    passes: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """Time one training epoch of a cell with cross-entropy, in alternating passes.

    Returns:
        Plain data: ``seconds`` an epoch and ``ratio`` to ``ours`` of each contender (median and quartiles),
        ``cells_per_minute`` (``settings.epochs`` epochs at the median, evaluation left out), ``loss_difference`` (the
        largest between ``ours`` and ``plain`` over the first ten steps), ``tokens``, ``vocabulary``, ``settings``,
        ``environment``.

    Raises:
        ConfigError: no pass, or no expert.
    """
    if min(passes, experts) < 1:
        raise ConfigError(f"passes and experts must be at least 1, got {passes} and {experts}")
    settings = settings or OneLayerTraining()
    epoch = _epoch(knowledge, [neurons] * experts, hidden_size, settings, seed)
    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: ours(epoch),
        "plain": lambda: plain(epoch),
        "padded": lambda: plain(epoch._replace(order=_shuffled(epoch))),
    }
    seconds = interleaved(contenders, passes, "cpu")
    start = epoch._replace(order=epoch.order[:10])
    return {
        "seconds": {name: summary(values) for name, values in seconds.items()},
        "ratio": ratios(seconds, "ours"),
        "cells_per_minute": {
            name: 60 / (summary(values)["median"] * settings.epochs) for name, values in seconds.items()
        },
        "loss_difference": max(abs(a - b) for a, b in zip(ours(start), plain(start), strict=True)),
        "tokens": sum(len(sequence) - 1 for sequence in epoch.sequences),
        "vocabulary": epoch.model.config.vocab_size,
        "settings": {"experts": experts, "neurons": neurons, "hidden_size": hidden_size, "passes": passes}
        | {"batch_size": settings.batch_size, "epochs": settings.epochs},
        "environment": environment("cpu"),
    }


def table1_tables(result: dict[str, Any]) -> list[Table]:
    """The result of :func:`bench_table1` as a table: medians, and quartiles of the ratios."""
    rows = []
    for name, seconds in result["seconds"].items():
        ratio = result["ratio"].get(name)
        spread = f"{ratio['median']:.2f} ({ratio['q25']:.2f}-{ratio['q75']:.2f})" if ratio else ""
        rows.append([name, f"{seconds['median']:.2f}", f"{result['cells_per_minute'][name]:.2f}", spread])
    settings, machine = result["settings"], result["environment"]
    title = (
        f"one epoch of {result['tokens']:,} tokens, {result['vocabulary']:,} words, {settings['experts']} experts, "
        f"width {settings['hidden_size']}; {machine['device']}, {machine['threads']} threads, {machine['clock']}, "
        f"{settings['passes']} passes; losses differ by at most {result['loss_difference']:.0e}"
    )
    return [Table(title, ["loop", "seconds an epoch", "cells a minute", "time / ours"], rows)]


def ours(epoch: Epoch) -> Losses:
    """Train one epoch as the cells of the table do; return the loss of every step."""
    model = copy.deepcopy(epoch.model)
    optimizer = make_optimizer(model, epoch.settings)
    return _steps(
        optimizer,
        epoch,
        lambda batch: losses(model, *gather(epoch.sequences, epoch.tasks, batch), "ce")[0],
    )


def plain(epoch: Epoch) -> Losses:
    """Train one epoch with the plain loop; return the loss of every step."""
    model = copy.deepcopy(epoch.model)
    optimizer = make_optimizer(model, epoch.settings, fused=False)
    return _steps(optimizer, epoch, lambda batch: _plain_loss(model, [epoch.sequences[index] for index in batch]))


def _steps(optimizer: torch.optim.Optimizer, epoch: Epoch, loss_of: Callable[[list[int]], Tensor]) -> Losses:
    found = []
    for step, batch in enumerate(epoch.order, start=1):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * epoch.settings.rate(step / (len(epoch.order) + 1))
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def _plain_loss(model: OneLayerForCausalLM, rows: Sequence[Sequence[int]]) -> Tensor:
    """The paper's layer and loss, line by line; padding is masked out of attention and out of the loss."""
    longest, body = max(map(len, rows)), model.model
    ids = torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows])
    inputs, targets = ids[:, :-1].clamp_min(0), ids[:, 1:]
    length = inputs.shape[1]
    states = body.embed_tokens(inputs)
    if body.embed_positions is not None:
        states = states + body.embed_positions(torch.arange(length))
    attention = body.attention
    query, key, value = (
        projection(states).view(len(rows), length, attention.num_heads, -1).transpose(1, 2)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -torch.inf)
    mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(len(rows), length, -1)
    states = states + attention.o_proj(mixed)
    flat = states.flatten(0, 1)
    if body.router is None:
        update = body.experts[0](flat)
    else:
        weights, chosen = body.router(flat).softmax(-1).max(-1)
        update = torch.zeros_like(flat)
        for index, expert in enumerate(body.experts):
            mine = chosen == index
            if mine.any():  # an expert that is called on nothing gets zeros for a gradient, and AdamW moves it on
                update[mine] = expert(flat[mine])
        update = update * weights[:, None]
    return F.cross_entropy(model.lm_head(flat + update), targets.flatten(), ignore_index=-1)


def _epoch(knowledge: Knowledge, sizes: list[int], hidden_size: int, settings: OneLayerTraining, seed: int) -> Epoch:
    train, _ = split(knowledge, seed)
    tokenizer = KnowledgeTokenizer(knowledge)
    sequences = [tokenizer.encode_sentence(sentence.words) for sentence in train]
    torch.manual_seed(seed)
    config = OneLayerConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=hidden_size,
        expert_sizes=sizes,
        num_heads=4,
        max_length=max(map(len, sequences)),
        gate="probability",
        initializer_range=0.05,
    )
    order = batches(sequences, settings.batch_size, random.Random(seed))
    return Epoch(OneLayerForCausalLM(config), sequences, [sentence.task for sentence in train], settings, order)


def _shuffled(epoch: Epoch) -> list[list[int]]:
    """Batches of any sentences, as a shuffling loader makes them."""
    order = random.Random(epoch.settings.seed).sample(range(len(epoch.sequences)), len(epoch.sequences))
    size = epoch.settings.batch_size
    return [order[start : start + size] for start in range(0, len(order), size)]
