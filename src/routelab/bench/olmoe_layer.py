"""One decoder layer of OLMoE, attention-aware routing on against off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import OlmoeConfig, OlmoeForCausalLM

import routelab
from routelab.bench.timing import interleaved, ratios, summary


def bench_layer(
    length: int,
    *,
    window: int = 40,
    passes: int = 3,
    dtype: str = "float32",
    device: str = "cpu",
    config: OlmoeConfig | None = None,
) -> dict[str, Any]:
    """Time forward and forward + backward of a layer as it stands in the middle of a stack.

    Gradients reach the layer's input and its router. Off: the host under SDPA with a trainable router; on: AAR with
    both views. ``config`` defaults to the width of OLMoE-1B-7B: hidden 2048, 16 heads, 64 experts of 1024, 8 active.

    Returns:
        Plain data: ``length``, ``parameters``, and for each of ``forward`` and ``forward+backward``: ``seconds`` of
        ``off`` and ``on``, and ``ratio`` of on to off (median and quartiles over the passes).
    """
    config = config or OlmoeConfig(num_hidden_layers=1, vocab_size=256, eos_token_id=1)
    config.use_cache = False
    torch.manual_seed(0)
    with torch.device(device):
        model = OlmoeForCausalLM(config).to(getattr(torch, dtype)).requires_grad_(False)
    (layer,) = model.model.layers
    hidden = torch.randn(1, length, config.hidden_size).to(device, model.dtype).requires_grad_()

    @contextmanager
    def routing(on: bool) -> Iterator[None]:
        if on:
            routelab.attach(model, routelab.AARConfig(layers="all", window=window))
        else:
            layer.mlp.gate.requires_grad_(True)
        yield
        if on:
            routelab.detach(model)
        model.requires_grad_(False)

    def forward() -> Tensor:
        with torch.no_grad():
            return model.model(inputs_embeds=hidden).last_hidden_state

    def both() -> None:
        model.model(inputs_embeds=hidden).last_hidden_state.square().mean().backward()
        model.zero_grad(set_to_none=True)
        hidden.grad = None

    def measure(run: Callable[[], object]) -> dict[str, Any]:
        """As :func:`interleaved`, with the switching outside the clock."""
        seconds: dict[str, list[float]] = {"off": [], "on": []}
        for turn in range(passes):
            for name in ("off", "on") if turn % 2 else ("on", "off"):
                with routing(name == "on"):
                    seconds[name] += interleaved({name: run}, 1, device)[name]
        return {"seconds": {name: summary(values) for name, values in seconds.items()}, "ratio": ratios(seconds, "off")}

    return {
        "length": length,
        "parameters": sum(p.numel() for p in layer.parameters()),
        "forward": measure(forward),
        "forward+backward": measure(both),
    }
