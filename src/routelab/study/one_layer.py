"""Which expert of a one-layer host each word of some sentences visits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from routelab.hosts.one_layer import OneLayerForCausalLM
from routelab.study.alignment import count_choices


@torch.no_grad()
def visits(
    model: OneLayerForCausalLM, sequences: Sequence[Sequence[int]], tasks: Sequence[int]
) -> tuple[np.ndarray, float]:
    """Return how often the words of each task visit each expert, int64 ``[K, E]``, and the share of steady sentences.

    A sentence is steady where all its words visit one expert. Words are what follows the begin token, up to the end
    token, which is never read. A dense host has one expert, which every word visits.

    Args:
        sequences: token ids from the begin to the end token.
        tasks: the task of each, from 0.
    """
    by_length: dict[int, list[int]] = {}
    for index, sequence in enumerate(sequences):
        by_length.setdefault(len(sequence), []).append(index)
    experts, labels, steady = [], [], 0
    for group in by_length.values():
        ids = torch.tensor([sequences[index] for index in group])[:, :-1]
        routed = model.model(ids).router_logits
        chosen = torch.zeros_like(ids) if routed is None else routed[0].argmax(-1).view_as(ids)
        chosen = chosen[:, 1:]
        steady += int((chosen == chosen[:, :1]).all(1).sum())
        experts.append(chosen.flatten().numpy())
        labels.append(np.repeat([tasks[index] for index in group], chosen.shape[1]))
    counts = count_choices(
        np.concatenate(experts)[:, None],
        np.concatenate(labels),
        num_tasks=max(tasks) + 1,
        num_experts=model.config.num_experts,
    )
    return counts, steady / len(sequences)
