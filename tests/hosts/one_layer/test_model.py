"""The layer against a plain per-token reading of the paper, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from routelab.errors import ConfigError, HostError
from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM


def make(**changes: object) -> OneLayerForCausalLM:
    torch.manual_seed(int(changes.pop("seed", 0)))  # type: ignore[call-overload]
    values = {
        "vocab_size": 23, "hidden_size": 12, "num_heads": 3, "expert_sizes": [5, 8, 3], "max_length": 16,
        "initializer_range": 0.5, **changes,
    }  # fmt: skip
    model = OneLayerForCausalLM(OneLayerConfig(**values)).double().eval()
    with torch.no_grad():
        for expert in model.model.experts:
            expert.up.bias.normal_()
            expert.down.bias.normal_()
    return model


def reference(model: OneLayerForCausalLM, ids: list[int]) -> tuple[Tensor, list[int]]:
    """Logits and chosen experts of one sequence, one token and one head at a time."""
    config, weights = model.config, dict(model.named_parameters())
    states = []
    for index, token in enumerate(ids):
        state = weights["model.embed_tokens.weight"][token]
        if config.positions:
            state = state + weights["model.embed_positions.weight"][index]
        states.append(state)
    q, k, v, o = (weights[f"model.attention.{name}_proj.weight"] for name in "qkvo")
    size, primes, logits, chosen = config.head_size, [], [], []
    for i, state in enumerate(states):
        mixed = []
        for head in range(config.num_heads):
            rows = slice(head * size, (head + 1) * size)
            scores = torch.stack([(q[rows] @ state) @ (k[rows] @ states[j]) / math.sqrt(size) for j in range(i + 1)])
            share = scores.exp() / scores.exp().sum()
            mixed.append(sum(share[j] * (v[rows] @ states[j]) for j in range(i + 1)))
        primes.append(o @ torch.cat(mixed) + state)
        x, expert, scale = primes[-1], 0, torch.ones((), dtype=torch.float64)
        if config.num_experts > 1:
            read = x if config.routing == "token" else torch.stack(primes).mean(0)
            router = weights["model.router.weight"] @ read
            expert = int(router.argmax())
            if config.gate == "probability":
                scale = router.exp()[expert] / router.exp().sum()
        name = f"model.experts.{expert}"
        inner = weights[f"{name}.up.weight"] @ x + weights[f"{name}.up.bias"]
        update = weights[f"{name}.down.weight"] @ inner.clamp_min(0) + weights[f"{name}.down.bias"]
        logits.append(weights["lm_head.weight"] @ (scale * update + x))
        chosen.append(expert)
    return torch.stack(logits), chosen


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gate": "probability"},
        {"gate": "probability", "routing": "sequence"},
        {"expert_sizes": [7]},
        {"positions": False, "head_size": 5, "num_heads": 2},
    ],
    ids=str,
)
def test_values_and_gradients(changes: dict[str, object]) -> None:
    model = make(**changes)
    ids = torch.randint(23, (2, 9), generator=torch.Generator().manual_seed(1))
    expected = [reference(model, row.tolist()) for row in ids]
    output = model(ids, output_router_logits=True)
    torch.testing.assert_close(output.logits, torch.stack([logits for logits, _ in expected]), atol=1e-12, rtol=1e-10)
    if model.config.num_experts > 1:
        assert output.router_logits[0].argmax(-1).tolist() == expected[0][1] + expected[1][1]
        assert len(set(expected[0][1] + expected[1][1])) > 1, "one expert alone would prove nothing"
    pull = torch.randn_like(output.logits)
    found = torch.autograd.grad(output.logits, list(model.parameters()), pull, allow_unused=True)
    wanted = torch.autograd.grad(
        torch.stack([logits for logits, _ in expected]), list(model.parameters()), pull, allow_unused=True
    )
    for (name, _), ours, theirs in zip(model.named_parameters(), found, wanted, strict=True):
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=1e-9, msg=name)
    if model.config.num_experts > 1:
        router = found[[name for name, _ in model.named_parameters()].index("model.router.weight")]
        assert (router is None) == (model.config.gate == "hard"), "a hard gate gives the router no gradient"


@pytest.mark.parametrize("routing", ["token", "sequence"])
def test_padding_changes_nothing(routing: str) -> None:
    model = make(routing=routing)
    row = torch.randint(23, (1, 6), generator=torch.Generator().manual_seed(2))
    alone = model(row).logits
    pad = torch.full((1, 3), 7)
    shown, hidden = torch.ones_like(row), torch.zeros_like(pad)
    left = model(torch.cat([pad, row], 1), attention_mask=torch.cat([hidden, shown], 1)).logits[:, 3:]
    right = model(torch.cat([row, pad], 1), attention_mask=torch.cat([shown, hidden], 1)).logits[:, :6]
    torch.testing.assert_close(left, alone, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(right, alone, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("routing", ["token", "sequence"])
def test_no_token_looks_ahead(routing: str) -> None:
    model = make(routing=routing)
    ids = torch.randint(23, (1, 8), generator=torch.Generator().manual_seed(3))
    changed = ids.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 23
    before, after = (model(row, output_router_logits=True) for row in (ids, changed))
    assert torch.equal(before.logits[:, :5], after.logits[:, :5])
    assert torch.equal(before.router_logits[0][:5], after.router_logits[0][:5])
    assert not torch.equal(before.logits[:, 5:], after.logits[:, 5:])


def test_generate_is_greedy_by_hand() -> None:
    model = make()
    ids = torch.randint(2, 23, (2, 4), generator=torch.Generator().manual_seed(4))
    shown = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
    done = model.generate(
        ids, attention_mask=shown, max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=1
    )
    for row, start in ((0, 1), (1, 0)):
        sequence = ids[row, start:].tolist()
        for _ in range(5):
            sequence.append(int(reference(model, sequence)[0][-1].argmax()))
        assert done[row, start:].tolist() == sequence


def test_loss_is_the_mean_over_labelled_next_tokens() -> None:
    model = make()
    ids = torch.randint(23, (2, 5), generator=torch.Generator().manual_seed(5))
    labels = ids.clone()
    labels[0, 3:] = -100
    logs = [reference(model, row.tolist())[0].log_softmax(-1) for row in ids]
    picked = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    expected = -sum(logs[row][i, ids[row, i + 1]] for row, i in picked) / len(picked)
    torch.testing.assert_close(model(ids, labels=labels).loss, expected)


def test_saved_and_loaded_by_its_type(tmp_path) -> None:
    model = make(gate="probability")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    assert type(loaded) is OneLayerForCausalLM
    assert loaded.dtype == torch.float64
    assert loaded.config.expert_sizes == [5, 8, 3]
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_heads": 1}, "num_heads must be at least 2"),
        ({"num_heads": 5}, "does not divide into 5 heads"),
        ({"expert_sizes": []}, "at least one size"),
        ({"expert_sizes": [4, 0]}, "at least one size of at least 1"),
        ({"gate": "probabilty"}, "did you mean 'probability'"),
        ({"routing": "sentence"}, "did you mean 'sequence'"),
        ({"vocab_size": 0}, "vocab_size must be at least 1"),
    ],
)
def test_bad_configurations_are_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(**changes)


def test_what_the_host_cannot_do_is_refused() -> None:
    model = make()
    with pytest.raises(HostError, match="17 tokens are more than the model's max_length 16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(HostError, match="does not take cache"):
        model(torch.zeros(1, 3, dtype=torch.long), cache=object())
