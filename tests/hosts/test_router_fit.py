import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralForCausalLM

from routelab.errors import HostError
from routelab.hosts.router_fit import SCALE, fit_routers
from routelab.hosts.upcycle import upcycle


def host(top_k: int = 2) -> MixtralForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.3,
    )  # fmt: skip
    return upcycle(LlamaForCausalLM(config).eval(), experts=4, top_k=top_k, router_init="random")


def batches(count: int = 8) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 61, (2, 40), generator=generator) for _ in range(count)]


def first_layer_choice(moe: MixtralForCausalLM, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first router's inputs, and the norm of each expert's output for them."""
    seen = []
    block = moe.model.layers[0].mlp
    hook = block.register_forward_hook(lambda _, args, __: seen.append(args[0].flatten(0, 1)))
    with torch.no_grad():
        moe(ids)
    hook.remove()
    gate, up = torch.einsum("td,eid->tei", seen[0], block.experts.gate_up_proj).chunk(2, dim=-1)
    outputs = torch.einsum("tei,edi->ted", torch.nn.functional.silu(gate) * up, block.experts.down_proj)
    return seen[0], outputs.norm(dim=-1)


def agreement(moe: MixtralForCausalLM) -> float:
    """Share of held-out tokens whose first choice is the expert with the largest output."""
    x, norms = first_layer_choice(moe, torch.randint(0, 61, (2, 40), generator=torch.Generator().manual_seed(9)))
    return float(((x @ moe.model.layers[0].mlp.gate.weight.T).argmax(1) == norms.argmax(1)).float().mean())


def test_fitted_routers_choose_the_experts_that_contribute_most() -> None:
    moe = host()
    before = agreement(moe)
    assert fit_routers(moe, batches()) == 8 * 80
    assert agreement(moe) > max(0.5, before + 0.2)


def test_it_is_the_ridge_solution_on_dense_activations() -> None:
    moe = host(top_k=4)
    with torch.no_grad():
        moe.model.layers[0].mlp.gate.weight.zero_()  # all experts, equal weights: the inputs are the dense model's
    x, norms = first_layer_choice(moe, torch.cat(batches(3)))
    target = (norms / norms.mean(1, keepdim=True) - 1).double()
    x = x.double()
    ridge = 0.01 * (x.T @ x).diagonal().mean() * torch.eye(32, dtype=torch.float64)
    expected = SCALE * torch.linalg.solve(x.T @ x + ridge, x.T @ target).T
    fit_routers(moe, batches(3))
    torch.testing.assert_close(moe.model.layers[0].mlp.gate.weight.detach(), expected.float(), atol=1e-5, rtol=1e-4)


def test_only_the_routers_change_and_the_scale_is_a_factor() -> None:
    first, second = host(), host()
    before = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    fit_routers(first, batches(2))
    fit_routers(second, batches(2), scale=2 * SCALE)
    for name, tensor in first.state_dict().items():
        if name.endswith("mlp.gate.weight"):
            torch.testing.assert_close(second.state_dict()[name], 2 * tensor)
        else:
            assert torch.equal(tensor, before[name]), name


def test_without_tokens_it_raises_and_the_experts_are_back() -> None:
    moe = host()
    experts = [layer.mlp.experts for layer in moe.model.layers]
    with pytest.raises(HostError, match="at least one batch"):
        fit_routers(moe, [])
    with pytest.raises(IndexError):
        fit_routers(moe, [torch.tensor([[10**6]])])
    assert [layer.mlp.experts for layer in moe.model.layers] == experts
