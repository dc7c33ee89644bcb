"""Blocks of the depth-recurrent architectures, under their published tensor names."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routelab.hosts.recurrent.config import RecurrentConfig
from routelab.hosts.recurrent.core import Attend
from routelab.hosts.recurrent.rotary import rotary_frequencies


@dataclass(frozen=True)
class Rotation:
    """Rotary position embedding of one call: pair i of every head turns by position · frequency_i.

    ``adjacent`` says what a pair is: channels (2i, 2i+1), as Huginn has it, or (i, i+d/2), as Llama has it. ``turns``
    are complex numbers ``[B or 1, S, 1, d/2]`` of modulus 1 (times the scaling of some Llama variants).
    """

    turns: Tensor
    adjacent: bool

    @classmethod
    def of(cls, positions: Tensor, config: RecurrentConfig, dtype: torch.dtype) -> Rotation:
        """Return the rotation of ``positions [B or 1, S]`` for heads of ``dtype``; float32 unless that is wider."""
        frequencies, scale = rotary_frequencies(config, positions.device)
        angles = (positions[..., None, None] * frequencies).to(_wide(dtype))
        return cls(torch.polar(torch.full_like(angles, scale), angles), adjacent=config.is_huginn)

    def __call__(self, heads: Tensor) -> Tensor:
        """Turn ``heads [B, S, H, d]``; returned in their dtype."""
        wide = heads.to(_wide(heads.dtype))
        if self.adjacent:
            # One complex product: ten times faster on a CPU than strided real ones.
            pairs = torch.view_as_complex(wide.unflatten(-1, (-1, 2)))
            turned = torch.view_as_real(pairs * self.turns).flatten(-2)
        else:
            first, second = wide.chunk(2, dim=-1)
            cos, sin = self.turns.real, self.turns.imag
            turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
        return turned.to(heads.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


class RMSNorm(nn.Module):
    """``x · weight / sqrt(mean(x²) + eps)`` over the last dimension; half precision is widened inside."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        # Under autocast the input may be narrower than the weight; the fused norm takes one dtype.
        hidden = hidden.to(torch.promote_types(hidden.dtype, self.weight.dtype))
        return F.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


class Projection(nn.Linear):
    """Linear map without bias back to the residual stream; only its fresh weights differ."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(inputs, width, bias=False)


class Attention(nn.Module):
    """Fused projections, an optional learned bias on query and key, rotation, and what attention the call brings."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.n_heads, config.num_key_value_heads, config.head_dim
        width = config.n_embd
        self.Wqkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=False)
        self.proj = Projection(width, width)
        if config.qk_bias:
            self.qk_bias = nn.Parameter(torch.zeros(2, 1, self.heads, self.head_dim))

    def forward(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        heads = self.Wqkv(hidden).unflatten(-1, (-1, self.head_dim))
        # Query and key heads lie side by side, so one pass adds their biases and turns them.
        turning, value = heads.split((self.heads + self.kv_heads, self.kv_heads), dim=2)
        if hasattr(self, "qk_bias"):
            turning = turning + self.qk_bias.view(-1, self.head_dim)
        query, key = rotation(turning).split((self.heads, self.kv_heads), dim=2)
        output = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
        return self.proj(output.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    """``proj(silu(gate) · up)``, where ``fc`` gives the gate first."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.fc = nn.Linear(config.n_embd, 2 * config.intermediate_size, bias=False)
        self.proj = Projection(config.intermediate_size, config.n_embd)

    def forward(self, hidden: Tensor) -> Tensor:
        gate, up = self.fc(hidden).chunk(2, dim=-1)
        return self.proj(F.silu(gate) * up)


class SandwichBlock(nn.Module):
    """Huginn: ``x = norm_2(x + attn(norm_1(x)))``, then ``x = norm_4(x + mlp(norm_3(x)))``."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(config.n_embd, config.norm_eps)
        self.attn = Attention(config)
        self.norm_2 = RMSNorm(config.n_embd, config.norm_eps)
        self.mlp = GatedMLP(config)
        self.norm_3 = RMSNorm(config.n_embd, config.norm_eps)
        self.norm_4 = RMSNorm(config.n_embd, config.norm_eps)

    def forward(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        hidden = self.norm_2(hidden + self.attn(self.norm_1(hidden), rotation, attend))
        return self.norm_4(hidden + self.mlp(self.norm_3(hidden)))


class PreNormBlock(nn.Module):
    """Llama: ``x = x + attn(norm_1(x))``, then ``x = x + mlp(norm_2(x))``."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(config.n_embd, config.norm_eps)
        self.attn = Attention(config)
        self.norm_2 = RMSNorm(config.n_embd, config.norm_eps)
        self.mlp = GatedMLP(config)

    def forward(self, hidden: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        hidden = hidden + self.attn(self.norm_1(hidden), rotation, attend)
        return hidden + self.mlp(self.norm_2(hidden))
