"""The forward against the public implementations and against a float64 reference written from the equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from routelab.errors import HostError
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM


def reference(model: RecurrentForCausalLM, ids: Tensor, initial: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Logits ``[S, V]`` and states ``[T, S, d]`` of one unpadded row, position by position, in float64."""
    config, weight = model.config, {name: tensor.double() for name, tensor in model.state_dict().items()}
    heads, groups, size = config.n_heads, config.num_key_value_heads, config.head_dim
    huginn = config.architecture == "huginn"

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * weight[f"transformer.{name}.weight"]

    def rotate(x: Tensor) -> Tensor:
        turned = torch.empty_like(x)
        for i in range(size // 2):
            a, b = (2 * i, 2 * i + 1) if huginn else (i, i + size // 2)
            angle = torch.arange(len(x), dtype=torch.float64)[:, None] * config.rope_theta ** (-2 * i / size)
            turned[..., a] = x[..., a] * angle.cos() - x[..., b] * angle.sin()
            turned[..., b] = x[..., a] * angle.sin() + x[..., b] * angle.cos()
        return turned

    def attention(x: Tensor, name: str) -> Tensor:
        sizes = (heads * size, groups * size, groups * size)
        q, k, v = (x @ weight[f"transformer.{name}.Wqkv.weight"].T).split(sizes, dim=-1)
        q, k, v = q.view(-1, heads, size), k.view(-1, groups, size), v.view(-1, groups, size)
        if huginn:
            bias = weight[f"transformer.{name}.qk_bias"]
            q, k = q + bias[0], k + bias[1]
        q, k = rotate(q), rotate(k)
        out = torch.zeros_like(q)
        for head in range(heads):
            group = head * groups // heads
            for i in range(len(x)):
                probabilities = (k[: i + 1, group] @ q[i, head] / math.sqrt(size)).softmax(0)
                out[i, head] = probabilities @ v[: i + 1, group]
        return out.flatten(1) @ weight[f"transformer.{name}.proj.weight"].T

    def mlp(x: Tensor, name: str) -> Tensor:
        gate, up = (x @ weight[f"transformer.{name}.fc.weight"].T).chunk(2, dim=-1)
        return (gate * gate.sigmoid() * up) @ weight[f"transformer.{name}.proj.weight"].T

    def block(x: Tensor, name: str) -> Tensor:
        if huginn:
            x = norm(x + attention(norm(x, f"{name}.norm_1"), f"{name}.attn"), f"{name}.norm_2")
            return norm(x + mlp(norm(x, f"{name}.norm_3"), f"{name}.mlp"), f"{name}.norm_4")
        x = x + attention(norm(x, f"{name}.norm_1"), f"{name}.attn")
        return x + mlp(norm(x, f"{name}.norm_2"), f"{name}.mlp")

    embedded = weight["transformer.wte.weight"][ids] * (math.sqrt(config.n_embd) if huginn else 1.0)
    for i in range(config.n_layers_in_prelude):
        embedded = block(embedded, f"prelude.{i}")
    state, states = initial.double(), []
    for _ in range(steps):
        state = torch.cat((state, embedded), dim=-1) @ weight["transformer.adapter.weight"].T
        for i in range(config.n_layers_in_recurrent_block):
            state = block(state, f"core_block.{i}")
        states.append(state)
    hidden = norm(state, "ln_f") if huginn else state
    for i in range(config.n_layers_in_coda):
        hidden = block(hidden, f"coda.{i}")
    return norm(hidden, "ln_f") @ weight["lm_head.weight"].T, torch.stack(states)


@pytest.mark.parametrize("steps", [1, 4, 12, 32])
def test_golden(golden, steps: int) -> None:
    model = RecurrentForCausalLM(RecurrentConfig(**golden.config)).eval()
    missing, unexpected = model.load_state_dict(golden.weights, strict=False)
    assert missing == ["lm_head.weight"] * golden.config.get("tie_embeddings", True)
    assert not unexpected
    expected = golden.expected
    with torch.no_grad():
        output = model(
            expected["input_ids"], num_steps=steps, initial_state=expected["initial_state"], output_states=True
        )
    torch.testing.assert_close(output.logits, expected[f"logits_T{steps}"], atol=1e-3, rtol=0)
    torch.testing.assert_close(output.states[:, 0], expected["states"][:steps], atol=1e-3, rtol=0)


def test_reference(model: RecurrentForCausalLM) -> None:
    ids, initial = torch.randint(61, (7,)), torch.randn(7, 32)
    logits, states = reference(model, ids, initial, steps=5)
    model = model.double()
    output = model(ids[None], num_steps=5, initial_state=initial[None].double(), output_states=True)
    # Rotation angles stay in float32 until they are turned into numbers.
    torch.testing.assert_close(output.logits[0], logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.states[:, 0], states, atol=1e-5, rtol=1e-5)


def test_gradients_match_finite_differences(model: RecurrentForCausalLM) -> None:
    model = model.double().train()
    ids, initial = torch.randint(61, (2, 6)), torch.randn(2, 6, 32).double()

    def loss() -> Tensor:
        logits = model(ids, num_steps=3, initial_state=initial).logits
        return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())  # the model's own loss is float32

    loss().backward()
    for name in ("adapter.weight", "core_block.1.attn.Wqkv.weight", "prelude.0.mlp.fc.weight", "ln_f.weight"):
        parameter = model.transformer.get_parameter(name)
        direction = torch.randn_like(parameter)
        direction /= direction.norm()
        with torch.no_grad():
            sides = []
            for step in (1e-4, -2e-4):
                parameter += step * direction
                sides.append(loss())
            parameter += 1e-4 * direction
        expected = (sides[0] - sides[1]) / 2e-4
        torch.testing.assert_close((parameter.grad * direction).sum(), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("left", [True, False])
def test_padded_rows_equal_rows_alone(model: RecurrentForCausalLM, left: bool) -> None:
    lengths = (9, 4, 1)
    ids, mask = torch.zeros(3, 9, dtype=torch.long), torch.zeros(3, 9, dtype=torch.long)
    real = [slice(9 - n, None) if left else slice(n) for n in lengths]
    for row, where in enumerate(real):
        ids[row, where], mask[row, where] = torch.randint(1, 61, (lengths[row],)), 1
    with torch.no_grad():
        together = model(ids, attention_mask=mask, num_steps=6, seed=5, output_states=True)
        assert together.logits.isfinite().all()
        for row, where in enumerate(real):
            alone = model(ids[row : row + 1, where], num_steps=6, seed=5, output_states=True)
            torch.testing.assert_close(together.logits[row, where], alone.logits[0], atol=1e-4, rtol=0)
            torch.testing.assert_close(together.states[:, row, where], alone.states[:, 0], atol=1e-4, rtol=0)


def test_what_stands_in_padding_does_not_matter(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(1, 61, (1, 8))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0]])
    other = torch.where(mask.bool(), ids, 60)
    outputs = [model(row, attention_mask=mask, num_steps=3).logits[0, 2:6] for row in (ids, other)]
    assert torch.equal(*outputs)


def test_default_steps_are_the_configured_mean(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (1, 5))
    assert model(ids, output_states=True).states.shape == (4, 1, 5, 32)
    assert torch.equal(model(ids).logits, model(ids, num_steps=4, seed=0).logits)


def test_logits_to_keep(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (2, 5))
    assert torch.allclose(model(ids, logits_to_keep=2).logits, model(ids).logits[:, -2:], atol=1e-6)


def test_bfloat16(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (2, 5))
    wide = model(ids).logits
    narrow = model.bfloat16()(ids).logits
    assert narrow.dtype == torch.bfloat16
    assert (narrow.float() - wide).norm() < 0.1 * wide.norm()


def test_bad_input_is_refused_by_name(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (2, 5))
    with pytest.raises(HostError, match="num_steps=0"):
        model(ids, num_steps=0)
    with pytest.raises(HostError, match=r"initial_state has shape \[2, 4, 32\].*\[2, 5, 32\]"):
        model(ids, initial_state=torch.zeros(2, 4, 32))
    with pytest.raises(HostError, match="position 64 is beyond the 64"):
        model(torch.zeros(1, 65, dtype=torch.long))
    with pytest.raises(HostError, match=r"attention_mask has shape \[2, 4\]"):
        model(ids, attention_mask=torch.ones(2, 4))
    with pytest.raises(HostError, match="packed"):
        model(ids, position_ids=torch.tensor([[0, 1, 2, 0, 1]]))


def test_padding_does_not_use_up_positions(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(1, 61, (1, 70))
    mask = torch.ones_like(ids)
    mask[:, :10] = 0
    assert model(ids, attention_mask=mask, num_steps=1).logits.shape == (1, 70, 61)
