"""Visits are counted word by word."""

from __future__ import annotations

import torch

from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM
from routelab.study.one_layer import visits


def test_visits_by_hand() -> None:
    torch.manual_seed(0)
    config = OneLayerConfig(vocab_size=9, hidden_size=8, expert_sizes=[4, 4, 4], initializer_range=1.0)
    model = OneLayerForCausalLM(config)
    sequences, tasks = [(0, 3, 4, 1), (0, 5, 6, 7, 8, 1), (0, 4, 3, 1), (0, 2, 2, 1)], [1, 0, 1, 0]
    counts, steady = visits(model, sequences, tasks)
    wanted, whole = [[0] * 3, [0] * 3], 0
    for sequence, task in zip(sequences, tasks, strict=True):
        logits = model(torch.tensor([sequence]), output_router_logits=True).router_logits[0]
        chosen = logits.argmax(-1).tolist()[1:-1]
        whole += len(set(chosen)) == 1
        for expert in chosen:
            wanted[task][expert] += 1
    assert counts.tolist() == wanted
    assert steady == whole / 4


def test_a_dense_host_has_one_expert() -> None:
    model = OneLayerForCausalLM(OneLayerConfig(vocab_size=9, hidden_size=8, expert_sizes=[4]))
    counts, steady = visits(model, [(0, 3, 4, 1), (0, 5, 1)], [0, 1])
    assert counts.tolist() == [[2], [1]]
    assert steady == 1.0
