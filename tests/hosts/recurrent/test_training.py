"""Training: random depth, truncated backpropagation, checkpointing."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

from routelab.hosts.recurrent import RecurrentForCausalLM, backbone
from routelab.hosts.recurrent.depth import Depth


def gradients(model: RecurrentForCausalLM) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def fix_depth(monkeypatch: pytest.MonkeyPatch, depth: Depth) -> None:
    monkeypatch.setattr(backbone, "sample_depth", lambda mean, backprop: depth)


def test_depth_is_random_only_in_training_and_only_where_none_is_given(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (1, 4))

    def depths(**given: int) -> set[int]:
        return {len(model(ids, output_states=True, **given).states) for _ in range(12)}

    assert depths() == {4}
    model.train()
    assert len(depths()) > 2
    assert depths(num_steps=3) == {3}


def test_training_is_seeded(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (2, 6))
    losses = []
    model.train()
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append([model(ids, labels=ids).loss.item() for _ in range(4)])
    assert losses[0] == losses[1] != losses[2]


def test_rows_of_a_training_batch_start_from_different_states(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (1, 6)).expand(2, -1)
    logits = model.train()(ids, num_steps=1).logits
    assert not torch.allclose(logits[0], logits[1], atol=1e-4)


def test_backpropagation_is_truncated(model: RecurrentForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """n steps without gradient, then k with: the gradient of k steps from the n-th state."""
    ids = torch.randint(61, (2, 6))
    model.train()
    fix_depth(monkeypatch, Depth(3, 2))
    output = model(ids, labels=ids, seed=1, output_states=True)
    assert len(output.states) == 5
    output.loss.backward()
    truncated = gradients(model)
    model.zero_grad()
    whole = model(ids, labels=ids, seed=1, num_steps=5)
    torch.testing.assert_close(whole.loss, output.loss)
    whole.loss.backward()
    assert not torch.allclose(model.transformer.adapter.weight.grad, truncated["transformer.adapter.weight"])
    model.zero_grad()
    start = output.states[2].detach()
    model(ids, labels=ids, initial_state=start, num_steps=2).loss.backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, truncated[name], msg=name)


@pytest.mark.parametrize("depth", [Depth(0, 3), Depth(2, 2)])
def test_checkpointing_changes_no_gradient(
    model: RecurrentForCausalLM, monkeypatch: pytest.MonkeyPatch, depth: Depth
) -> None:
    """Two forwards of different padding before the backward pass: every recomputation finds its own mask."""
    fix_depth(monkeypatch, depth)
    ids = torch.randint(1, 61, (2, 8))
    masks = torch.ones(2, 2, 8, dtype=torch.long)
    masks[0, 0, :3], masks[1, 1, :5] = 0, 0

    def run(trained: RecurrentForCausalLM) -> dict[str, Tensor]:
        labels = [ids.masked_fill(mask == 0, -100) for mask in masks]
        losses = [
            trained(ids, attention_mask=mask, labels=label, seed=3).loss
            for mask, label in zip(masks, labels, strict=True)
        ]
        sum(losses).backward()
        return gradients(trained)

    plain, checkpointed = model.train(), copy.deepcopy(model)
    checkpointed.activation_checkpointing_enable()
    expected, found = run(plain), run(checkpointed)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], msg=name)


def test_checkpointing_recomputes_the_core(model: RecurrentForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    step = backbone.RecurrentModel._step
    monkeypatch.setattr(backbone.RecurrentModel, "_step", lambda *args: calls.append(args[-1]) or step(*args))
    model.train().activation_checkpointing_enable()
    ids = torch.randint(61, (1, 5))
    model(ids, labels=ids, num_steps=3).loss.backward()
    assert calls == [1, 2, 3, 3, 2, 1]


def test_autocast_keeps_the_gradients_of_repeated_weights(
    model: RecurrentForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps without gradient come first; what autocast keeps of their weights must not cut later steps off."""
    fix_depth(monkeypatch, Depth(2, 2))
    ids = torch.randint(61, (2, 6))
    found = []
    for enabled in (False, True):
        model.train().zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = model(ids, labels=ids, seed=1).loss
        loss.backward()
        found.append(model.transformer.adapter.weight.grad.clone())
    assert torch.cosine_similarity(found[0].flatten(), found[1].flatten(), dim=0) > 0.95


def test_fresh_weights_follow_the_papers_deviations(make) -> None:
    config = make("huginn", n_embd=256, vocab_size=400).config
    core = RecurrentForCausalLM(config).transformer.core_block[0]
    std = (2 / (5 * 256)) ** 0.5
    assert abs(core.attn.Wqkv.weight.std() / std - 1) < 0.03
    for projection in (core.attn.proj, core.mlp.proj):
        assert abs(projection.weight.std() / (std / (2 * (1 + 2 * 4 + 1)) ** 0.5) - 1) < 0.03
    assert core.attn.qk_bias.eq(0).all()
    assert core.norm_4.weight.eq(1).all()


def test_it_learns_with_the_trainer(make, tmp_path) -> None:
    model = make("llama")
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(61, (8, 8)).repeat(4, 1)]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=5,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
        eval_strategy="epoch",
        gradient_checkpointing=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8])
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert losses[-1] < 0.7 * losses[0]
