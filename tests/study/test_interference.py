from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from routelab.errors import EvaluationError, HostError, LayerError
from routelab.study.interference import probe_interference
from routelab.study.quadratic import compromise

SIZES = {
    "vocab_size": 29,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
    "tie_word_embeddings": False,
}


@dataclass
class Chat:
    input_ids: list[int]
    labels: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.labels = self.labels or [-100, -100, *self.input_ids[2:]]


def chats(seed: int, n: int, length: int, low: int = 0, high: int = 29) -> list[Chat]:
    rng = np.random.default_rng(seed)
    return [Chat(rng.integers(low, high, size=length + i % 3).tolist()) for i in range(n)]


def host(dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SIZES)).to(dtype).eval()


EXAMPLES = {"no_think": chats(1, 4, 5, 0, 12), "think": chats(2, 6, 11, 12, 29)}


def mode_loss(model: PreTrainedModel, mode: str) -> torch.Tensor:
    losses = []
    for chat in EXAMPLES[mode]:
        logits = model(input_ids=torch.tensor([chat.input_ids]), use_cache=False).logits[0, :-1]
        losses.append(F.cross_entropy(logits, torch.tensor(chat.labels[1:])))
    return torch.stack(losses).mean()


def layer_gradient(model: PreTrainedModel, loss: torch.Tensor, layer: int) -> torch.Tensor:
    parameters = list(model.model.layers[layer].mlp.parameters())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])


def test_cosines_norms_and_shares_by_their_definition() -> None:
    model = host()
    found = probe_interference(model, EXAMPLES, penalty=False)
    losses = {mode: mode_loss(model, mode) for mode in EXAMPLES}
    summed = {
        mode: sum(
            (len(c.labels) - 2) * F.cross_entropy(
                model(input_ids=torch.tensor([c.input_ids])).logits[0, :-1], torch.tensor(c.labels[1:])
            )
            for c in EXAMPLES[mode]
        )
        for mode in EXAMPLES
    }  # fmt: skip
    assert [each.layer for each in found.layers] == [0, 1, 2]
    for each in found.layers:
        g0, g1 = (layer_gradient(model, losses[mode], each.layer) for mode in ("no_think", "think"))
        s0, s1 = (layer_gradient(model, summed[mode], each.layer).norm().item() for mode in ("no_think", "think"))
        assert each.cosine == pytest.approx(F.cosine_similarity(g0, g1, dim=0).item(), abs=1e-6)
        assert each.norm["think"] == pytest.approx(g1.norm().item(), rel=1e-5)
        assert each.think_share == pytest.approx(s1 / (s0 + s1), rel=1e-5)
    assert found.loss == pytest.approx({mode: loss.item() for mode, loss in losses.items()})
    assert found.examples == {"no_think": 4, "think": 6}
    assert found.tokens == {mode: sum(len(c.labels) - 2 for c in each) for mode, each in EXAMPLES.items()}
    assert found.overall.layer is None
    assert found.penalty is None
    json.dumps(asdict(found))


def test_the_penalty_uses_the_gauss_newton_matrix_in_the_plane_of_both_gradients() -> None:
    """Against Jacobians of the logits by automatic differentiation, and penalty and gain against their minima."""
    model = host()
    model.set_attn_implementation("eager")
    found = probe_interference(model, EXAMPLES, step=5e-5).penalty
    names = [name for name, _ in model.named_parameters() if ".mlp." in name]
    gradients = []
    for mode in ("no_think", "think"):
        parts = torch.autograd.grad(mode_loss(model, mode), [model.get_parameter(name) for name in names])
        gradients.append(torch.cat([part.flatten() for part in parts]))
    first = gradients[0] / gradients[0].norm()
    rest = gradients[1] - (gradients[1] @ first) * first
    basis = torch.stack([first, rest / rest.norm()])
    sizes = [model.get_parameter(name).numel() for name in names]
    curvature = []
    for mode in ("no_think", "think"):
        total = torch.zeros(2, 2, dtype=torch.float64)
        for chat in EXAMPLES[mode]:
            ids = torch.tensor([chat.input_ids])

            def logits(moves: torch.Tensor, ids: torch.Tensor = ids) -> torch.Tensor:
                flat = (moves @ basis).split(sizes)
                moved = {
                    name: model.get_parameter(name) + part.view_as(model.get_parameter(name))
                    for name, part in zip(names, flat, strict=True)
                }
                return torch.func.functional_call(model, moved, kwargs={"input_ids": ids, "use_cache": False}).logits[0]

            jacobian = torch.func.jacfwd(logits)(torch.zeros(2, dtype=torch.float64))[1:-1]
            p = logits(torch.zeros(2, dtype=torch.float64))[1:-1].detach().softmax(-1)
            fisher = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
            total += (jacobian.mT @ fisher @ jacobian).mean(0)
        curvature.append(total.detach().numpy() / len(EXAMPLES[mode]))
        assert np.allclose(found.curvature[mode], curvature[-1], rtol=3e-3, atol=1e-3)
    by_hand = compromise((basis @ torch.stack(gradients).T).T.numpy(), np.stack(curvature), (0.4, 0.6))
    assert found.penalty == pytest.approx(by_hand.penalty, rel=1e-2)
    assert found.of_gain == pytest.approx(by_hand.penalty / by_hand.gain, rel=1e-2)
    assert 0 < found.of_gain <= 1


def test_one_mode_twice_does_not_conflict_and_opposite_answers_do() -> None:
    same = {"no_think": EXAMPLES["think"], "think": EXAMPLES["think"]}
    found = probe_interference(host(), same)
    assert found.overall.cosine == pytest.approx(1)
    assert found.overall.think_share == pytest.approx(0.5)
    assert found.penalty is None, "equal gradients span no plane"
    prompts = [[5, 6, 7, i] for i in range(8)]
    answers = {
        mode: [Chat([*prompt, token], [-100] * 4 + [token]) for prompt in prompts]
        for mode, token in (("no_think", 20), ("think", 21))
    }
    opposed = probe_interference(host(), answers)
    assert opposed.overall.cosine < 0.9
    assert opposed.overall.same_mode["think"] > opposed.overall.cosine
    assert opposed.penalty.penalty > 0


def test_long_answers_take_over_the_token_sum() -> None:
    shorter = {"no_think": chats(1, 4, 4), "think": chats(2, 4, 4)}
    longer = {"no_think": shorter["no_think"], "think": chats(2, 4, 40)}
    shares = [probe_interference(host(), each, penalty=False).overall.think_share for each in (shorter, longer)]
    assert shares[1] > shares[0]


def test_the_model_is_left_as_it_was() -> None:
    model = host(torch.float32).train()
    model.model.layers[0].mlp.eval()
    model.lm_head.weight.requires_grad_(False)
    model.model.layers[1].mlp.up_proj.weight.requires_grad_(False)
    model.model.norm.weight.grad = torch.ones_like(model.model.norm.weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = {name: module.training for name, module in model.named_modules()}
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    with torch.no_grad():
        found = probe_interference(model, EXAMPLES)
    assert found.penalty is not None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert modes == {name: module.training for name, module in model.named_modules()}
    assert trained == {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["model.norm.weight"]


def test_chosen_layers_other_families_and_progress() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    progress: list[tuple[int, int]] = []
    found = probe_interference(
        model, EXAMPLES, layers=[2, 0], on_progress=lambda done, total: progress.append((done, total))
    )
    assert [each.layer for each in found.layers] == [0, 2]
    assert progress == [(i, 20) for i in range(1, 21)]
    single = probe_interference(model, EXAMPLES, layers=[1], penalty=False)
    assert asdict(single.layers[0]) | {"layer": None} == asdict(single.overall)


def test_half_precision_measures_gradients_but_no_penalty() -> None:
    model = host(torch.bfloat16)
    found = probe_interference(model, EXAMPLES, penalty=False)
    exact = probe_interference(host(), EXAMPLES, penalty=False)
    assert found.overall.cosine == pytest.approx(exact.overall.cosine, abs=0.05)
    with pytest.raises(EvaluationError, match=r"torch\.bfloat16; load the host in float32"):
        probe_interference(model, EXAMPLES)


def test_bad_requests(make_host: Callable[..., PreTrainedModel]) -> None:
    with pytest.raises(EvaluationError, match=r"no_think and think, got \{'think': 6, 'no_think': 0\}"):
        probe_interference(host(), {"think": EXAMPLES["think"], "no_think": []})
    with pytest.raises(EvaluationError, match="example 0 of no_think has no labelled token"):
        probe_interference(host(), {**EXAMPLES, "no_think": [Chat([1, 2, 3], [-100] * 3)]})
    with pytest.raises(LayerError, match="no layer 3; this host has layers 0 to 2"):
        probe_interference(host(), EXAMPLES, layers=[3])
    with pytest.raises(LayerError, match="no layer was chosen"):
        probe_interference(host(), EXAMPLES, layers=[])
    with pytest.raises(HostError, match="mixture of experts"):
        probe_interference(make_host("olmoe"), EXAMPLES)
