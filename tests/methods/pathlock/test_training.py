"""Gradients: each expert learns from its own tokens alone, and rests where it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.errors import ConfigError
from routelab.methods.pathlock.layer import PathLockedMLP, normalised_loss, plan_rows, plan_tokens

IDS = torch.randint(3, 1000, (4, 9), generator=torch.Generator().manual_seed(0))


def loss(model: PreTrainedModel, ids: Tensor, modes: Any, **options: Any) -> Tensor:
    logits = model(ids, routing_index=modes, use_cache=False, **options).logits
    return cross_entropy(logits[:, :-1].flatten(0, 1).double(), ids[:, 1:].flatten(), reduction="sum")


def experts(model: PreTrainedModel, mode: str) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if f".mlp.{mode}." in name}


def gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize(("mode", "idle"), [(0, "think"), (1, "no_think")])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_other_expert_gets_no_gradient(locked: PreTrainedModel, mode: int, idle: str, checkpointing: bool) -> None:
    locked.train()
    if checkpointing:
        locked.gradient_checkpointing_enable({"use_reentrant": False})
    loss(locked, IDS, [mode] * 4).backward()
    idle_parameters = experts(locked, idle)
    assert len(idle_parameters) == 9
    assert all(parameter.grad is None for parameter in idle_parameters.values())
    assert all(p.grad is not None for name, p in locked.named_parameters() if name not in idle_parameters)


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_mixed_batch_is_the_sum_of_its_rows(locked: PreTrainedModel, reentrant: bool | None) -> None:
    locked.double().train()
    modes = [1, 0, 0, 1]
    for row, mode in enumerate(modes):
        loss(locked, IDS[row : row + 1], [mode]).backward()
    expected = gradients(locked)
    if reentrant is not None:
        locked.gradient_checkpointing_enable({"use_reentrant": reentrant})
        locked.enable_input_require_grads()
    loss(locked, IDS, modes).backward()
    mixed = gradients(locked)
    assert mixed.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(mixed[name], gradient, atol=1e-6, rtol=1e-6)


def test_checkpointing_replays_the_plan_of_its_own_forward(locked: PreTrainedModel) -> None:
    """Two forwards of different modes and shapes, then both backwards, last first."""
    locked.double().train()
    loss(locked, IDS[:1], [1]).backward()
    loss(locked, IDS[1:], [0, 1, 0]).backward()
    expected = gradients(locked)
    locked.gradient_checkpointing_enable({"use_reentrant": False})
    first, second = loss(locked, IDS[:1], [1]), loss(locked, IDS[1:], [0, 1, 0])
    second.backward()
    first.backward()
    for name, gradient in gradients(locked).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-9, rtol=1e-9)


def test_packed_rows_learn_like_separate_ones(locked: PreTrainedModel) -> None:
    locked.double().train()
    for row, mode in enumerate([1, 0]):
        loss(locked, IDS[row : row + 1], [mode]).backward()
    expected = gradients(locked)
    packed, positions = IDS[:2].reshape(1, -1), torch.arange(9).repeat(2)[None]
    index = torch.tensor([1, 0]).repeat_interleave(9)[None]
    logits = locked(packed, position_ids=positions, routing_index=index, use_cache=False).logits.reshape(2, 9, -1)
    cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:2, 1:].flatten(), reduction="sum").backward()
    for name, gradient in gradients(locked).items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-6)


def test_an_idle_expert_rests_bit_for_bit(locked: PreTrainedModel) -> None:
    """Neither weight decay nor the momentum of an earlier mixed phase moves it."""
    locked.train()
    optimizer = torch.optim.AdamW(locked.parameters(), lr=1e-2, weight_decay=0.1)

    def step(modes: list[int]) -> None:
        loss(locked, IDS, modes).backward()
        optimizer.step()
        optimizer.zero_grad()

    step([0, 1, 0, 1])
    held = {name: parameter.detach().clone() for name, parameter in experts(locked, "no_think").items()}
    moving = {name: parameter.detach().clone() for name, parameter in experts(locked, "think").items()}
    for _ in range(3):
        step([1] * 4)
    assert all(torch.equal(parameter, held[name]) for name, parameter in experts(locked, "no_think").items())
    assert not any(torch.equal(parameter, moving[name]) for name, parameter in experts(locked, "think").items())
    step([0] * 4)
    assert not any(torch.equal(parameter, held[name]) for name, parameter in experts(locked, "no_think").items())


def test_each_token_costs_one_mlp() -> None:
    """Every token goes through one expert, once."""
    calls: list[int] = []

    class Counting(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, hidden: Tensor) -> Tensor:
            calls.append(hidden.shape[:-1].numel())
            return hidden * self.factor

    mlp = PathLockedMLP(no_think=Counting(2.0), think=Counting(3.0))
    hidden = torch.randn(3, 4, 5)
    modes = torch.randint(0, 2, (3, 4), generator=torch.Generator().manual_seed(1))
    for plan, factors in (
        (plan_rows([1, 0, 1], 4, hidden.device), torch.tensor([3.0, 2.0, 3.0])[:, None, None]),
        (plan_rows([0, 0, 0], 4, hidden.device), torch.tensor(2.0)),
        (plan_tokens(modes, hidden.device), (modes + 2.0)[..., None]),
    ):
        calls.clear()
        mlp.plan = plan
        assert torch.equal(mlp(hidden), hidden * factors)
        assert sum(calls) == 12


@pytest.mark.parametrize("normalisation", ["example", "token"])
def test_normalisation(normalisation: Any) -> None:
    losses = torch.tensor([1.0, 2.0, 3.0, 10.0], dtype=torch.float64, requires_grad=True)
    examples = torch.tensor([7, 7, 7, 2])
    value = normalised_loss(losses, examples, normalisation)
    assert value.item() == {"example": (6 / 3 + 10 / 1) / 2, "token": 16 / 4}[normalisation]
    value.backward()
    weights = {"example": [1 / 6, 1 / 6, 1 / 6, 1 / 2], "token": [1 / 4] * 4}[normalisation]
    torch.testing.assert_close(losses.grad, torch.tensor(weights, dtype=torch.float64))
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(normalised_loss(losses[order], examples[order], normalisation), value)


def test_bad_normalisation() -> None:
    with pytest.raises(ConfigError, match="unknown normalisation"):
        normalised_loss(torch.ones(2), torch.zeros(2, dtype=torch.long), "sequence")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="alike"):
        normalised_loss(torch.ones(2), torch.zeros(3, dtype=torch.long), "token")


@pytest.mark.parametrize("packing", [False, True])
def test_train(
    make_dense: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerBase, tmp_path: Any, packing: bool
) -> None:
    """Through the library's training: think rows alone leave no_think where it was, and a resumed run is the same."""
    from routelab.train import TrainConfig, train

    rows = [
        {"messages": [{"role": "user", "content": f"{i} /think"}, {"role": "assistant", "content": f"it is {i}"}]}
        for i in range(12)
    ]
    config = TrainConfig(
        steps=4,
        batch_size=2,
        max_length=64,
        learning_rate=1e-2,
        packing=packing,
        gradient_checkpointing=True,
        save_every=2,
    )
    arms = []
    for resume in (False, True):
        model = routelab.attach(make_dense("qwen3"), routelab.PathLockConfig(), tokenizer=tokenizer)
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        result = train(model, tokenizer, rows, config, seed=0, output_dir=tmp_path / "run", resume=resume)
        assert result.frozen_identical
        arms.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, before[name]) == (".mlp.no_think." in name), name
    assert all(torch.equal(arms[0][name], arms[1][name]) for name in arms[0])
