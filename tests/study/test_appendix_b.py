"""What appendix B of arXiv 2604.27201 says of path-locked training, exactly, on a tiny model in float64.

Shared parameters are called alpha, the experts beta_0 and beta_1; a dense model has one beta.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from routelab.methods.pathlock.layer import PathLockedMLP, plan_rows

VOCABULARY, WIDTH, INNER, ROWS, LENGTH = 7, 4, 5, 6, 3
RATE = 0.1


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(x)))


class Decoder(nn.Module):
    """Two layers that mix tokens causally by a running mean, each with an MLP, between embedding and head."""

    def __init__(self, mlp: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.mix = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.mlps = nn.ModuleList(mlp() for _ in range(2))
        self.double()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        steps = torch.arange(1, ids.shape[1] + 1)[:, None]
        for mix, mlp in zip(self.mix, self.mlps, strict=True):
            x = x + mix(x.cumsum(1) / steps)
            x = x + mlp(x)
        return self.head(x)


@pytest.fixture
def batch() -> tuple[Tensor, list[int]]:
    torch.manual_seed(1)
    return torch.randint(VOCABULARY, (ROWS, LENGTH + 1)), [0, 1, 1, 0, 1, 1]


def dense(seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(MLP)


def locked(model: Decoder) -> Decoder:
    """The path-locked model that starts from ``model``: both experts are copies of its MLP."""
    copy = deepcopy(model)
    copy.mlps = nn.ModuleList(PathLockedMLP(deepcopy(mlp), deepcopy(mlp)) for mlp in model.mlps)
    return copy


def objective(model: Decoder, ids: Tensor, modes: list[int]) -> Tensor:
    """The example-weighted objective (equation 10): every row weighs the same."""
    for mlp in model.mlps:
        if isinstance(mlp, PathLockedMLP):
            mlp.plan = plan_rows(modes, LENGTH, torch.device("cpu"))
    logits = model(ids[:, :-1])
    losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return losses.mean(1).mean()


def experts(model: Decoder, mode: int) -> list[nn.Parameter]:
    return [parameter for mlp in model.mlps for parameter in mlp.experts[mode].parameters()]


def alpha(model: Decoder) -> list[nn.Parameter]:
    return [parameter for name, parameter in model.named_parameters() if not name.startswith("mlps.")]


def sgd_step(model: Decoder, ids: Tensor, modes: list[int]) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    optimiser.zero_grad()
    objective(model, ids, modes).backward()
    optimiser.step()


def test_the_hessian_between_the_experts_is_zero_and_within_each_it_is_not(batch: tuple[Tensor, list[int]]) -> None:
    ids, modes = batch
    model = locked(dense())
    loss = objective(model, ids, modes)
    own = [experts(model, mode) for mode in (0, 1)]
    for mode in (0, 1):
        gradient = torch.autograd.grad(loss, own[mode], create_graph=True)
        rows = [element for part in gradient for element in part.flatten()]
        blocks = {0: 0.0, 1: 0.0, "alpha": 0.0}
        for element in rows:
            for name, parameters in ((0, own[0]), (1, own[1]), ("alpha", alpha(model))):
                second = torch.autograd.grad(element, parameters, retain_graph=True, allow_unused=True)
                blocks[name] = max([blocks[name], *(part.abs().max().item() for part in second if part is not None)])
        assert blocks[1 - mode] == 0.0
        assert blocks[mode] > 1e-3
        assert blocks["alpha"] > 1e-3, "the modes stay coupled through what they share"


def test_the_first_sgd_step_splits_exactly(batch: tuple[Tensor, list[int]]) -> None:
    """From equal experts, the steps of both add up to the dense model's; the shared parameters take the same step."""
    ids, modes = batch
    before = dense()
    one, two = deepcopy(before), locked(before)
    sgd_step(one, ids, modes)
    sgd_step(two, ids, modes)
    start = [parameter for mlp in before.mlps for parameter in mlp.parameters()]
    moved = [parameter for mlp in one.mlps for parameter in mlp.parameters()]
    for s, m, first, second in zip(start, moved, experts(two, 0), experts(two, 1), strict=True):
        assert (first - s).abs().max() > 0
        assert (second - s).abs().max() > 0
        torch.testing.assert_close((first - s) + (second - s), m - s, rtol=0, atol=1e-15)
    for first, second in zip(alpha(one), alpha(two), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-15)


@pytest.mark.parametrize("mode", [0, 1])
def test_each_expert_takes_the_step_of_its_own_mode(batch: tuple[Tensor, list[int]], mode: int) -> None:
    """``beta_r`` moves by ``-rate * p_r ∇L_r``: the dense gradient of its own rows, weighted by their share."""
    ids, modes = batch
    before = dense()
    two = locked(before)
    sgd_step(two, ids, modes)
    mine = torch.tensor(modes) == mode
    share = mine.double().mean()
    parameters = [parameter for mlp in before.mlps for parameter in mlp.parameters()]
    gradient = torch.autograd.grad(objective(before, ids[mine], [mode] * int(mine.sum())), parameters)
    for start, each, after in zip(parameters, gradient, experts(two, mode), strict=True):
        torch.testing.assert_close(after, start - RATE * share * each, rtol=0, atol=1e-15)


def test_after_the_first_step_the_sum_no_longer_holds(batch: tuple[Tensor, list[int]]) -> None:
    """The identity is one of the first step alone, which shows that the test above can fail."""
    ids, modes = batch
    one, two = dense(), locked(dense())
    start = [p.detach().clone() for mlp in one.mlps for p in mlp.parameters()]
    for _ in range(2):
        sgd_step(one, ids, modes)
        sgd_step(two, ids, modes)
    moved = [p for mlp in one.mlps for p in mlp.parameters()]
    off = [
        ((a - s) + (b - s) - (m - s)).abs().max().item()
        for s, m, a, b in zip(start, moved, experts(two, 0), experts(two, 1), strict=True)
    ]
    assert max(off) > 1e-6


def test_the_dense_model_is_the_path_locked_one_with_equal_experts(batch: tuple[Tensor, list[int]]) -> None:
    ids, modes = batch
    for seed in range(5):
        model = dense(seed)
        assert objective(model, ids, modes).item() == pytest.approx(
            objective(locked(model), ids, modes).item(), abs=1e-15
        )


def test_the_larger_set_never_has_the_larger_minimum(batch: tuple[Tensor, list[int]]) -> None:
    """Started at the dense minimum, the experts can only go down; where the modes disagree they do."""
    ids, modes = batch
    ids = ids.clone()
    ids[:, :-1] = ids[0, :-1]  # the modes see the same prompts and differ in what they should say
    ids[:, -1] = torch.tensor(modes)
    one = dense()
    optimiser = torch.optim.LBFGS(one.parameters(), lr=0.5, max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = objective(one, ids, modes)
        loss.backward()
        return loss

    optimiser.step(closure)
    best = objective(one, ids, modes).item()
    two = locked(one)
    assert objective(two, ids, modes).item() == pytest.approx(best, abs=1e-12)
    only = torch.optim.SGD([*experts(two, 0), *experts(two, 1)], lr=0.5)
    for _ in range(50):
        only.zero_grad()
        objective(two, ids, modes).backward()
        only.step()
    assert objective(two, ids, modes).item() < best - 1e-2
