"""Alignment measures against values by hand, and on a model whose routers are made to align."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import routelab
from routelab.errors import EvaluationError
from routelab.study.alignment import active_experts, alignment, count_choices, measures
from routelab.study.task_experts import Text, router_gradient_norms, task_experts

MakeHost = Callable[..., PreTrainedModel]


def test_counts() -> None:
    experts = np.array([[[0, 1], [1, 2], [0, 2]], [[3, 0], [3, 1], [3, 2]]], dtype=np.uint16)
    counts = count_choices(experts, np.array([0, 0, 1]), num_tasks=2, num_experts=4)
    assert counts.tolist() == [[[1, 2, 1, 0], [1, 0, 1, 0]], [[1, 1, 0, 2], [0, 0, 1, 1]]]
    assert np.array_equal(count_choices(experts[1], np.array([0, 0, 1]), num_tasks=2, num_experts=4), counts[1])


def test_measures_by_hand() -> None:
    # Task 0 splits 3 : 1 over experts 0 and 1, task 1 always takes expert 1; expert 2 is dead.
    found = alignment(np.array([[3, 1, 0], [0, 8, 0]]))
    assert found["share"] == [[0.75, 0.25, 0], [0, 1, 0]]
    assert found["load"] == [0.375, 0.625, 0]
    assert found["dead"] == 1
    assert found["purity"] == 0.375 + 0.5
    h = [0.25 * math.log(4) + 0.75 * math.log(4 / 3), 0]
    assert found["entropy"] == pytest.approx([h[0] / math.log(3), 0])
    h_e = -(0.375 * math.log(0.375) + 0.625 * math.log(0.625))
    information = h_e - (h[0] + h[1]) / 2
    assert found["nmi"] == pytest.approx(information / min(math.log(2), h_e))


@pytest.mark.parametrize(
    ("counts", "nmi", "purity"),
    [
        ([[5, 0, 0, 0], [0, 9, 0, 0]], 1, 1),  # one expert a task
        ([[2, 3, 0, 0], [0, 0, 7, 1]], 1, 1),  # groups of experts that no other task uses
        ([[4, 0], [0, 2], [0, 5], [1, 0]], 1, 0.5),  # fewer experts than tasks: the task tells the expert
        ([[2, 2], [5, 5]], 0, 0.5),  # all alike
        ([[3, 0], [4, 0]], 0, 0.5),  # one expert for all
    ],
)
def test_measures_at_their_ends(counts: list[list[int]], nmi: float, purity: float) -> None:
    found = alignment(np.array(counts))
    assert found["nmi"] == pytest.approx(nmi, abs=1e-12)
    assert found["purity"] == pytest.approx(purity)


def test_a_task_weighs_the_same_whatever_its_length() -> None:
    counts = np.array([[3, 1, 0], [2, 5, 1]])
    one, other = alignment(counts), alignment(counts * np.array([[1], [1000]]))
    assert other["nmi"] == pytest.approx(one["nmi"])
    assert (other["purity"], other["load"]) == (one["purity"], one["load"])


def test_active_experts() -> None:
    counts = np.array([[90, 5, 5, 0], [25, 25, 25, 25], [100, 0, 0, 0]])
    assert active_experts(counts, 0.95).tolist() == [2, 4, 1]
    assert measures(np.stack([counts, counts]), [3, 7], ["a", "b", "c"])["active_experts"] == [2, 4, 1]


def test_bad_input_is_named() -> None:
    experts = np.zeros((3, 2), dtype=np.uint16)
    with pytest.raises(EvaluationError, match="3 tokens chose experts and 2 tokens have a task"):
        count_choices(experts, np.array([0, 1]), num_tasks=2, num_experts=4)
    with pytest.raises(EvaluationError, match="tasks are numbered 0 to 1, got 0 to 2"):
        count_choices(experts, np.array([0, 1, 2]), num_tasks=2, num_experts=4)
    with pytest.raises(EvaluationError, match="no token of task 1 chose an expert"):
        alignment(np.array([[1, 2], [0, 0]]))


def texts(prompt: int = 3) -> dict[str, list[Text]]:
    low, high = list(range(3, 11)), list(range(40, 48))
    return {"low": [Text(low, prompt)], "high": [Text(high, prompt), Text(high[::-1], prompt)]}


def test_a_model_of_known_choices(make_host: MakeHost) -> None:
    model = make_host("olmoe", num_hidden_layers=2, num_experts=4, num_experts_per_tok=1)
    with torch.no_grad():
        # Tokens 3 to 10 point one way, 40 to 47 the other, and nothing else reaches the routers.
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[3:11, 0] = 50
        model.model.embed_tokens.weight[40:48, 0] = -50
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.experts.down_proj.zero_()
            layer.mlp.gate.weight.zero_()
            layer.mlp.gate.weight[1, 0], layer.mlp.gate.weight[2, 0] = 1, -1
    found = task_experts(model, texts())
    assert found["tasks"] == ["low", "high"]
    assert found["tokens"] == {"low": 8, "high": 16}
    assert [each["share"] for each in found["layers"]] == [[[0, 1, 0, 0], [0, 0, 1, 0]]] * 2
    assert (found["nmi"], found["purity"], found["dead"]) == (1, 1, 4)
    expert = sum(p.numel() for p in model.model.layers[0].mlp.experts.parameters()) // 4
    total = sum(p.numel() for p in model.parameters())
    assert found["parameters"] == total
    assert found["active_parameters"] == [total - 2 * 3 * expert] * 2


def test_router_gradient_is_the_losss_own(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    every = [text for group in texts().values() for text in group]
    loss = 0
    for text in every:
        ids = torch.tensor([text.ids])
        labels = ids.masked_fill(torch.arange(len(text.ids)) < text.prompt, -100)
        loss = loss + model(ids, labels=labels, use_cache=False).loss / len(every)  # replies are equally long
    weights = [layer.mlp.gate.weight for layer in model.model.layers]
    expected = [float(g.norm()) for g in torch.autograd.grad(loss, weights)]
    routelab.attach(model, routelab.TaskRoutingConfig(tasks=["a", "b"]))
    flags = [p.requires_grad for p in model.parameters()]
    found = router_gradient_norms(model, every)
    assert list(found.values()) == pytest.approx(expected, rel=1e-4)
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())


def test_no_gradient_is_zero(make_host: MakeHost) -> None:
    model = make_host("qwen3_moe", num_experts_per_tok=1, norm_topk_prob=True)
    norms = router_gradient_norms(model, texts()["high"])
    assert max(norms.values()) < 1e-6


def test_sequence_routing_is_studied_by_its_prompts(make_host: MakeHost) -> None:
    config = routelab.TaskRoutingConfig(task_router=0, routing="sequence")
    found = task_experts(routelab.attach(make_host("olmoe"), config), texts())
    # Three experts a token, the same for all tokens of the one text.
    assert all(sum(share > 0 for share in each["share"][0]) == 3 for each in found["layers"])
