"""Chosen experts are those of the router logits; agreement is the share in common."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import routelab
from routelab.errors import EvaluationError
from routelab.study.experts import agreement, chosen_experts


def test_chosen_experts_are_the_top_logits(make_host: Callable[..., PreTrainedModel], family: str) -> None:
    model = make_host(family)
    texts = [[5, 6, 7, 8], [9, 10]]
    chosen, layers = chosen_experts(model, texts)
    assert (chosen.shape, layers) == ((4, 6, 3), [0, 1, 2, 3])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([texts[1]]), output_router_logits=True, use_cache=False).router_logits
    assert np.array_equal(chosen[2, 4:], logits[2].topk(3).indices.sort(-1).values.numpy())


def test_a_routing_method_changes_the_choice(make_host: Callable[..., PreTrainedModel]) -> None:
    model = make_host("olmoe")
    before, _ = chosen_experts(model, [list(range(3, 40))])
    routelab.attach(model, routelab.AARConfig(layers=[3], window=4, init_std=1.0))
    after, _ = chosen_experts(model, [list(range(3, 40))])
    shares = agreement(before, after)
    assert shares[:3].tolist() == [1.0, 1.0, 1.0]
    assert shares[3] < 1


def test_agreement_by_hand() -> None:
    first = np.array([[[0, 1], [2, 3]]], dtype=np.uint16)
    second = np.array([[[1, 2], [2, 3]]], dtype=np.uint16)
    assert agreement(first, second).tolist() == [0.75]
    with pytest.raises(EvaluationError, match="not recorded on the same texts"):
        agreement(first, second[:, :1])


def test_no_text_is_refused(make_host: Callable[..., PreTrainedModel]) -> None:
    with pytest.raises(EvaluationError, match="no text"):
        chosen_experts(make_host("olmoe"), [])
