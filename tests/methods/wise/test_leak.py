"""The leak through shared supports: there with the paper's form, zero with the causal one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from routelab.errors import EvaluationError
from routelab.hosts.recurrent import RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.leak import generation_gap, support_leak

CONFIG = WISEConfig(discovery_steps=3, window=2, block_size=8, mass=0.6)
IDS = torch.randint(1, 64, (1, 29), generator=torch.Generator().manual_seed(1))
MakeRecurrent = Callable[..., RecurrentForCausalLM]


def test_the_papers_form_leaks_and_the_causal_one_does_not(recurrent: RecurrentForCausalLM) -> None:
    leak = support_leak(recurrent, IDS, CONFIG, num_steps=6)
    assert (leak.changes, leak.tokens) == (3, 21)
    assert leak.largest_logit > 1e-3
    assert leak.mean_divergence > 0
    assert leak.mean_log_probability > 0
    for other in (replace(CONFIG, causal=True), replace(CONFIG, condition="full")):
        assert support_leak(recurrent, IDS, other, num_steps=6).largest_logit < 1e-5


@pytest.mark.parametrize("discovery", ["adaptive", "margin"])
def test_no_rule_of_the_causal_form_looks_ahead(make_recurrent: MakeRecurrent, discovery: str) -> None:
    config = replace(CONFIG, causal=True, discovery=discovery, discovery_steps=7)
    assert support_leak(make_recurrent(), IDS, config, num_steps=9, positions=[12, 28]).largest_logit < 1e-5


def test_the_gap_to_generation(make_recurrent: MakeRecurrent) -> None:
    model = make_recurrent("llama")
    assert generation_gap(model, IDS, 20, CONFIG, num_steps=6) > 1e-3
    assert generation_gap(model, IDS, 20, replace(CONFIG, causal=True), num_steps=6) < 1e-4


def test_refusals(make_recurrent: MakeRecurrent) -> None:
    model = make_recurrent()
    with pytest.raises(EvaluationError, match=r"positions \[8\]"):
        support_leak(model, IDS, CONFIG, positions=[8, 9])
    with pytest.raises(EvaluationError, match="one row"):
        support_leak(model, IDS.expand(2, -1), CONFIG)
    with pytest.raises(EvaluationError, match="1 to 28, not 29"):
        generation_gap(model, IDS, 29, CONFIG)
