"""The states ``A'`` of prefixes: the model's own embedding and attention, run over the longest of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from routelab.hosts.one_layer import OneLayerForCausalLM
from routelab.theory.prefixes import Prefix

_BATCH = 512


@torch.no_grad()
def prefix_states(model: OneLayerForCausalLM, prefixes: Sequence[Prefix]) -> Tensor:
    """Return ``A' [P, d]``, the state of the last token of every prefix.

    Attention is causal, so one run over the longest of them gives the states of all.
    """
    inner = model.model
    found = torch.full((len(prefixes), model.config.hidden_size), torch.nan, dtype=torch.float64)
    place = {prefix.tokens: at for at, prefix in enumerate(prefixes)}
    longer = {prefix.tokens[:end] for prefix in prefixes for end in range(len(prefix.tokens))}
    by_length: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for tokens in place:
        if tokens not in longer:
            by_length[len(tokens)].append(tokens)
    for length, rows in by_length.items():
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            ids = torch.tensor([(model.config.bos_token_id, *tokens) for tokens in part])
            states = inner.embed_tokens(ids) + inner.positions()[: length + 1]
            states = (states + inner.attention(states, None)).flatten(0, 1)
            places = [place.get(tokens[:end], -1) for tokens in part for end in range(length + 1)]
            asked = [at for at, where in enumerate(places) if where >= 0]
            found[[places[at] for at in asked]] = states[asked]
    return found
