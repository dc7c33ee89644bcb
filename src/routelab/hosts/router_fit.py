"""First routers for a neuron-split host, fitted in closed form to how much each expert would contribute."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from transformers import MixtralForCausalLM
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from routelab.errors import HostError

SCALE = 0.1
RIDGE = 0.01


@torch.no_grad()
def fit_routers(moe: MixtralForCausalLM, batches: Iterable[Tensor], *, scale: float = SCALE) -> int:
    """Set every router of a neuron-split ``moe`` by ridge regression, in place; return the number of tokens used.

    With n_e(x) = ‖E_e(x)‖ the norm of expert e's output for the router's input x (as the dense model has it, all
    experts active), the target is the relative norm r_e = n_e / mean_e(n_e) − 1, and the router is

        W = scale · argmin_W Σ_x ‖W x − r(x)‖² + λ‖W‖²,   λ = RIDGE · mean eigenvalue of Σ x xᵀ.

    The top-k of W x then are, as well as a linear map of x can tell, the experts that would add most; MoEfication
    (arXiv 2110.01786) chooses by predicted contribution too, with a small network per layer. A small ``scale`` keeps
    the renormalised weights near 1/k, which is where the split is exact.

    ``batches``: token ids, int64 [B, n] each, without padding; one pass is made over them.

    Raises:
        HostError: no tokens were given.
    """
    layers = moe.model.layers
    originals = [layer.mlp.experts for layer in layers]
    meters = [_Meter(experts, moe.config.num_experts_per_tok) for experts in originals]
    for layer, meter in zip(layers, meters, strict=True):
        layer.mlp.experts = meter
    try:
        for input_ids in batches:
            moe.model(input_ids=input_ids.to(moe.device), use_cache=False)
    finally:
        for layer, experts in zip(layers, originals, strict=True):
            layer.mlp.experts = experts
    tokens = meters[0].tokens
    if not tokens:
        raise HostError("fitting routers needs at least one batch of tokens")
    for layer, meter in zip(layers, meters, strict=True):
        layer.mlp.gate.weight.copy_(scale * meter.solve())
    return tokens


class _Meter(nn.Module):
    """Stands in for the experts: answers as the dense MLP would, and accumulates the normal equations.

    Shapes: T tokens, d width, E experts, I neurons each.
    """

    def __init__(self, experts: MixtralExperts, top_k: int) -> None:
        super().__init__()
        self.experts: MixtralExperts = experts
        self.top_k = top_k
        self.tokens = 0
        count, width, _ = experts.down_proj.shape
        self.gram = torch.zeros(width, width, dtype=torch.float64, device=experts.down_proj.device)
        self.moment = torch.zeros(width, count, dtype=torch.float64, device=experts.down_proj.device)

    def forward(self, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        experts = self.experts
        gate_up = nn.functional.linear(hidden, experts.gate_up_proj.flatten(0, 1))  # [T, 2·E·I]
        gate, up = gate_up.view(len(hidden), experts.num_experts, 2, -1).unbind(2)  # [T, E, I]
        neurons = (experts.act_fn(gate) * up).transpose(0, 1)
        outputs = torch.bmm(neurons, experts.down_proj.transpose(1, 2))  # [E, T, d]
        norms = outputs.float().norm(dim=-1).T
        relative = norms / norms.mean(1, keepdim=True) - 1
        x = hidden.float()
        self.gram += x.T @ x
        self.moment += x.T @ relative
        self.tokens += len(hidden)
        return outputs.sum(0) / self.top_k

    def solve(self) -> Tensor:
        ridge = RIDGE * self.gram.diagonal().mean()
        regular = self.gram + ridge * torch.eye(len(self.gram), dtype=self.gram.dtype, device=self.gram.device)
        return torch.linalg.solve(regular, self.moment).T
