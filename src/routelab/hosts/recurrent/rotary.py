"""How fast every pair of channels turns."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from routelab.hosts.recurrent.config import PLAIN, RecurrentConfig


def rotary_frequencies(config: RecurrentConfig, device: torch.device) -> tuple[Tensor, float]:
    """Return frequencies ``[d/2]`` in float32, θ^(−2i/d) or as the configuration's scaling changes them, and the factor
    that some scalings put on the rotated heads (1 otherwise)."""
    kind = config.rope_parameters["rope_type"]
    if kind == PLAIN:
        exponents = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32) / config.head_dim
        return config.rope_theta**-exponents, 1.0
    return ROPE_INIT_FUNCTIONS[kind](config, device)
