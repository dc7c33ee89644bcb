"""Token-by-token decoding of a batch with a key-value cache.

Three things make it fast where a batch is large and a model small: prompts of one batch have similar lengths, a
prefix that all prompts share is computed once, and a sequence that has ended leaves the batch. None of them changes
what a sequence gets, apart from rounding: a row is laid out as in ordinary left padding, with the same attention mask
and positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache

from routelab.evaluate.cache import grow_in_place, plain_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from routelab.evaluate.stopping import Stops

_COMPACT_BELOW = 0.875
_MIN_SHARED = 32


@dataclass
class Row:
    """One sequence to decode: its prompt, where its result goes, its own randomness, and what has been generated."""

    index: int
    ids: Sequence[int]
    generator: torch.Generator | None
    generated: list[int] = field(default_factory=list)
    finished: bool = False


@dataclass(frozen=True)
class Prefix:
    """Keys and values ``[1, heads, length, d]`` of every layer for the tokens all prompts begin with."""

    length: int
    layers: tuple[tuple[Tensor, Tensor], ...]


def row_generator(seed: int, example: str, sample: int) -> torch.Generator:
    """Return a generator of its own for each (seed, example, sample), so that draws do not depend on the batch."""
    digest = hashlib.sha256(f"{seed}/{example}/{sample}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def shared_length(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many leading tokens all prompts have in common, leaving each at least one of its own."""
    if len(prompts) < 2:
        return 0
    shortest = min(map(len, prompts))
    common = next((i for i in range(shortest) if len({prompt[i] for prompt in prompts}) > 1), shortest)
    return min(common, shortest - 1)


def compute_prefix(model: PreTrainedModel, ids: Sequence[int]) -> Prefix | None:
    """Run the tokens all prompts share, once; None where that would not pay or the cache holds other things."""
    if len(ids) < _MIN_SHARED:
        return None
    cache = model(**_inputs(model, torch.tensor([list(ids)]), None), use_cache=True, logits_to_keep=1).cache
    layers = plain_layers(cache)
    return None if layers is None else Prefix(len(ids), layers)


def decode(
    model: PreTrainedModel,
    rows: Sequence[Row],
    *,
    max_new_tokens: int,
    temperature: float,
    ends: frozenset[int],
    stops: Stops,
    prefix: Prefix | None = None,
) -> None:
    """Fill ``generated`` and ``finished`` of every row.

    The next token is ``argmax(logits / temperature + Gumbel noise)``, which is a draw from the softmax (Gumbel-max),
    or the plain argmax at temperature 0. A row finishes with an end token, which is not kept, or a stop string, which
    is.
    """
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, width - len(row.ids) :] = torch.tensor(row.ids)
        mask[i, width - len(row.ids) :] = 1
    cache = None if prefix is None else _expand(model, prefix, mask)
    start = 0 if prefix is None else prefix.length
    active = list(rows)
    columns = ids[:, start:]
    while True:
        output = model(**_inputs(model, columns, mask), cache=cache, use_cache=True, logits_to_keep=1)
        cache = output.cache
        grow_in_place(cache)
        tokens = _choose(output.logits[:, -1].float().cpu(), active, temperature)
        for row, token in zip(active, tokens, strict=True):
            if row.finished:
                continue
            if token in ends:
                row.finished = True
            else:
                row.generated.append(token)
        stops.mark([row for row in active if not row.finished])
        running = [i for i, row in enumerate(active) if _goes_on(row, max_new_tokens)]
        if not running:
            return
        columns = torch.tensor(tokens)[:, None]
        mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        if len(running) <= _COMPACT_BELOW * len(active):
            kept = torch.tensor(running)
            cache.reorder_cache(kept.to(model.device))
            columns, mask, active = columns[kept], mask[kept], [active[i] for i in running]


def _goes_on(row: Row, max_new_tokens: int) -> bool:
    return not row.finished and len(row.generated) < max_new_tokens


def _inputs(model: PreTrainedModel, columns: Tensor, mask: Tensor | None) -> dict[str, Any]:
    """Arguments for the last ``columns`` of a left-padded batch: positions count the real tokens before."""
    if mask is None:
        mask = torch.ones_like(columns)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)[:, -columns.shape[1] :]
    named = {"input_ids": columns, "attention_mask": mask, "position_ids": positions}
    return {name: tensor.to(model.device) for name, tensor in named.items()}


def _expand(model: PreTrainedModel, prefix: Prefix, mask: Tensor) -> Any:
    """Return a cache holding the first ``prefix.length`` columns of a left-padded batch ``mask [rows, width]``.

    A row with ``p`` columns of padding holds the prefix shifted by ``p``; the tokens shifted out are computed again.
    """
    pads = (mask == 0).sum(-1).clamp_max(prefix.length)
    filled = []
    for tensors in prefix.layers:
        pair = []
        for shared in tensors:
            full = shared.new_zeros(len(mask), *shared.shape[1:])
            for pad in pads.unique().tolist():
                full[pads.to(full.device) == pad, :, pad:] = shared[:, :, : prefix.length - pad]
            pair.append(full)
        filled.append(tuple(pair))
    cache = DynamicCache(config=model.config)
    for index, (keys, values) in enumerate(filled):
        cache.update(keys, values, index)
    return cache


def _choose(logits: Tensor, rows: Sequence[Row], temperature: float) -> list[int]:
    if temperature:
        noise = torch.stack([torch.empty(logits.shape[-1]).exponential_(generator=row.generator) for row in rows])
        logits = logits / temperature - noise.log()
    return list(logits.argmax(-1).tolist())
