"""Nothing of the size of the attention matrices is ever allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from routelab.hosts.recurrent import CoreCall, RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.engine import WorkingSetAttention, running

LENGTH = 2048
HEADS = 4


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that one result of an operation had in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("condition", ["wise", "size_matched", "freeze", "random"])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_attention_is_never_materialised(condition: str, causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, HEADS, LENGTH, 8) for _ in range(3))
    mask = torch.ones(1, LENGTH, dtype=torch.bool)
    mask[:, -5:] = False  # right padding needs no mask of n x n, not even one without heads
    engine = WorkingSetAttention(
        WISEConfig(condition=condition, causal=causal, discovery_steps=2, window=1, block_size=32, mass=0.6)
    )
    with LargestTensor() as largest:
        engine.begin(CoreCall(3, LENGTH, LENGTH, mask, False, None))
        for step in (1, 2, 3):
            engine.attend(step, 0, query, key, value)
        engine.end()
    assert engine.last is not None
    assert engine.last.density < 0.9
    assert largest.elements < LENGTH * LENGTH * HEADS / 8


@torch.no_grad()
def test_neither_is_it_in_a_whole_forward(make_recurrent: Callable[..., RecurrentForCausalLM]) -> None:
    model = make_recurrent("llama")
    ids = torch.randint(1, 64, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    config = WISEConfig(discovery_steps=2, window=2, block_size=32, mass=0.6)
    with running(model, config), LargestTensor() as largest:
        output = model(ids, num_steps=3, use_cache=True, logits_to_keep=1)
        model(ids[:, :1], num_steps=3, cache=output.cache)
    assert largest.elements < LENGTH * LENGTH * HEADS / 8
