"""The two losses against values computed by hand and by the definition, token by token."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers.models.olmoe.modeling_olmoe import load_balancing_loss_func

from routelab.errors import ConfigError
from routelab.methods.taskrouting.layer import (
    expert_of_task,
    experts_of_task,
    load_balance_loss,
    membership,
    task_router_loss,
)

LN = math.log
#: Softmax rows (1/2, 1/4, 1/4), (1/4, 1/2, 1/4), (1/4, 1/4, 1/2).
ROWS = torch.tensor([[LN(2), 0, 0], [0, LN(2), 0], [0, 0, LN(2)]], dtype=torch.float64)


def random(tokens: int, experts: int, seed: int = 0) -> Tensor:
    return torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_task_router_loss_by_hand() -> None:
    # Tokens want experts 0, 0, 2: -(ln 1/2 + ln 1/4 + ln 1/2) / 3 = 4 ln 2 / 3.
    assert float(task_router_loss(ROWS, torch.tensor([0, 0, 2]))) == pytest.approx(4 * LN(2) / 3, abs=1e-15)
    # The second token does not count, whatever its label says.
    masked = task_router_loss(ROWS, torch.tensor([0, -100, 2]), torch.tensor([1, 0, 1]))
    assert float(masked) == pytest.approx(LN(2), abs=1e-15)


def test_task_router_loss_of_groups_by_hand() -> None:
    # Groups {0, 1}, {0, 1}, {2}: p = 3/4, 3/4, 1/2.
    member = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    expected = -(2 * LN(3 / 4) + LN(1 / 2)) / 3
    assert float(task_router_loss(ROWS, member)) == pytest.approx(expected, abs=1e-15)
    single = torch.eye(3, dtype=torch.bool)
    torch.testing.assert_close(task_router_loss(ROWS, single), task_router_loss(ROWS, torch.arange(3)))


def test_load_balance_loss_by_hand() -> None:
    # Every token visits its largest: p and z are uniform, 3 * (3 * 1/3 * 1/3) = 1.
    assert float(load_balance_loss(ROWS, torch.arange(3))) == pytest.approx(1, abs=1e-15)
    # All visit expert 0: 3 * (mean p_0 = 1/3) * 1 = 1; only the first token counts: 3 * 1/2 * 1.
    indices = torch.zeros(3, dtype=torch.long)
    assert float(load_balance_loss(ROWS, indices)) == pytest.approx(1, abs=1e-15)
    assert float(load_balance_loss(ROWS, indices, torch.tensor([1, 0, 0]))) == pytest.approx(1.5, abs=1e-15)


def test_load_balance_loss_is_the_switch_formula_token_by_token() -> None:
    logits, experts = random(37, 5), 5
    indices = logits.argmax(-1)
    p = [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in logits.tolist()]
    total = 0.0
    for e in range(experts):
        mean_p = sum(row[e] for row in p) / len(p)
        mean_z = sum(index == e for index in indices.tolist()) / len(p)
        total += mean_p * mean_z
    assert float(load_balance_loss(logits, indices)) == pytest.approx(experts * total, rel=1e-12)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_load_balance_loss_is_the_hosts_own(top_k: int) -> None:
    logits = random(24, 8).float()
    mask = torch.ones(2, 12)
    mask[1, 7:] = 0
    indices = logits.topk(top_k, dim=-1).indices
    host = load_balancing_loss_func((logits,), 8, top_k, mask)
    torch.testing.assert_close(load_balance_loss(logits, indices, mask.reshape(-1)), host)


def test_gradients_by_finite_differences() -> None:
    logits = random(6, 4).requires_grad_()
    mask = torch.tensor([1, 1, 0, 1, 0, 1])
    member = membership([(0, 1), (2,), (1, 3)], 4)[torch.tensor([0, 1, 2, 2, 1, 0])]
    indices = logits.detach().topk(2, dim=-1).indices
    assert torch.autograd.gradcheck(lambda x: task_router_loss(x, member, mask), logits)
    assert torch.autograd.gradcheck(lambda x: task_router_loss(x, indices[:, 0], mask), logits)
    assert torch.autograd.gradcheck(lambda x: load_balance_loss(x, indices, mask), logits)


def test_a_token_that_does_not_count_has_no_gradient_and_no_nan() -> None:
    logits = random(3, 4).requires_grad_()
    member = torch.zeros(3, 4, dtype=torch.bool)
    member[0, 1] = True
    mask = torch.tensor([1, 0, 0])
    (task_router_loss(logits, member, mask) + load_balance_loss(logits, torch.tensor([0, 1, 2]), mask)).backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0].abs().sum() > 0
    assert torch.equal(logits.grad[1:], torch.zeros(2, 4, dtype=torch.float64))


def test_no_token_counts() -> None:
    nothing = torch.zeros(3)
    assert float(task_router_loss(ROWS, torch.full((3,), -100), nothing)) == 0
    assert float(load_balance_loss(ROWS, torch.zeros(3, dtype=torch.long), nothing)) == 0


def test_low_precision_is_computed_in_float32() -> None:
    logits = random(64, 16).bfloat16()
    target = torch.arange(64) % 16
    loss = task_router_loss(logits, target)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), task_router_loss(logits.double(), target), atol=1e-6, rtol=1e-6)


def test_experts_of_tasks() -> None:
    assert [expert_of_task(task, 3) for task in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [expert_of_task(task, 3, [2, 0]) for task in range(2)] == [2, 0]
    assert experts_of_task(1, 16, size=5, mapping=None) == (5, 6, 7, 8, 9)
    assert experts_of_task(3, 8, size=3) == (1, 2, 3)
    assert experts_of_task(0, 2, size=3) == (0, 1), "a group is never larger than the layer"


@pytest.mark.parametrize(
    ("task", "mapping", "said"),
    [
        (2, [0, 1], "names the experts of 2 tasks and has none for task 2"),
        (1, [0, 9], "sends task 1 to expert 9; there are experts 0 to 3"),
        (-1, None, "numbered from 0, got -1"),
    ],
)
def test_bad_tasks_are_named(task: int, mapping: list[int] | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        expert_of_task(task, 4, mapping)
