"""Path-Lock experts against their dense host, and against the form that runs both experts on every token."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

import routelab
from routelab.bench.timing import environment, interleaved, peak_bytes, ratios, summary
from routelab.bench.window import Table
from routelab.errors import ConfigError
from routelab.hosts.dense import locate_dense
from routelab.hosts.minis.loader import TOKENIZER

STEPS = ("forward", "forward+backward", "decoding", "optimizer")
CONTENDERS = ("dense", "single", "mixed", "masked")


class MaskedMLP(nn.Module):
    """Both experts on every token, and a mask over their outputs: twice the work, and gradients of exactly zero."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.no_think, self.think = mlp, copy.deepcopy(mlp)
        self.index: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        assert self.index is not None
        return torch.where(self.index[:, None, None] == 1, self.think(hidden), self.no_think(hidden))


def bench_pathlock(
    *,
    batch: int = 4,
    length: int = 512,
    hidden_size: int = 576,
    intermediate_size: int = 1536,
    layers: int = 4,
    decode_tokens: int = 32,
    passes: int = 9,
    dtype: str = "float32",
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time and peak memory of a random Llama (SmolLM2-135M's layer by default; a vocabulary of 2,048), seed 0.

    Contenders: ``dense`` (the host), ``single`` (path-locked, all sequences no_think), ``mixed`` (path-locked, every
    second sequence think) and ``masked`` (both experts on every token, :class:`MaskedMLP`, the same modes as mixed).
    Steps: one forward of ``[batch, length]``; forward and backward of the summed logits' mean; greedy decoding of
    ``decode_tokens`` with a cache; one AdamW step after a backward of that kind.

    Returns:
        Plain data: ``settings``, ``environment``, ``parameters``, and for every step ``seconds`` and ``ratio`` to the
        dense host (median and quartiles over the passes) and ``peak_bytes`` (the optimizer's state for its step).
    """
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise ConfigError(f"dtype must be a floating torch dtype such as float32 or bfloat16, got {dtype!r}")
    if min(batch, length, hidden_size // 64, intermediate_size, layers, decode_tokens, passes) < 1 or hidden_size % 64:
        raise ConfigError("sizes and passes must be at least 1, and hidden_size a multiple of 64")
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 64,
        num_key_value_heads=hidden_size // 64,
        max_position_embeddings=length + decode_tokens,
    )
    torch.manual_seed(0)
    dense = LlamaForCausalLM(config).to(device, kind).eval()
    locked = routelab.attach(
        copy.deepcopy(dense), routelab.PathLockConfig(), tokenizer=AutoTokenizer.from_pretrained(TOKENIZER)
    )
    ids = torch.randint(2048, (batch, length), generator=torch.Generator().manual_seed(0)).to(device)
    mixed = torch.arange(batch, device=device) % 2
    masked = _masked(dense, mixed)
    runs: dict[str, tuple[PreTrainedModel, dict[str, Any]]] = {
        "dense": (dense, {}),
        "single": (locked, {"routing_index": torch.zeros_like(mixed)}),
        "mixed": (locked, {"routing_index": mixed}),
        "masked": (masked, {}),
    }
    work: dict[str, Callable[..., object]] = {
        "forward": _forward,
        "forward+backward": _forward_backward,
        "decoding": partial(_decode, tokens=decode_tokens),
    }
    result: dict[str, Any] = {}
    for step, run in work.items():
        progress(step)
        contenders = {name: partial(run, model, ids, options) for name, (model, options) in runs.items()}
        seconds = interleaved(contenders, passes, device)
        result[step] = _numbers(seconds, {name: peak_bytes(call, device) for name, call in contenders.items()})
    progress("optimizer")
    result["optimizer"] = _optimizer(runs, ids, passes, device)
    return {
        "settings": {"batch": batch, "length": length, "layers": layers, "hidden_size": hidden_size}
        | {"intermediate_size": intermediate_size, "decode_tokens": decode_tokens, "dtype": dtype, "passes": passes},
        "environment": environment(device),
        "parameters": {name: sum(p.numel() for p in model.parameters()) for name, (model, _) in runs.items()},
        "steps": result,
    }


def pathlock_tables(result: dict[str, Any]) -> list[Table]:
    """The result of :func:`bench_pathlock` as a table: median milliseconds, ratios with quartiles, megabytes."""
    settings, machine = result["settings"], result["environment"]
    title = (
        f"path-lock: {settings['layers']} layers, d={settings['hidden_size']}, I={settings['intermediate_size']}, "
        f"{settings['batch']} x {settings['length']} tokens, {settings['dtype']}, {machine['device']}, "
        f"{machine['threads']} threads, {machine['clock']}, {settings['passes']} passes"
    )
    rows = []
    for step in STEPS:
        data = result["steps"][step]
        for name in CONTENDERS:
            ratio = data["ratio"].get(name)
            spread = "" if ratio is None else f"{ratio['median']:.2f} ({ratio['q25']:.2f}-{ratio['q75']:.2f})"
            milliseconds = f"{data['seconds'][name]['median'] * 1e3:.1f}"
            rows.append([step, name, milliseconds, spread, f"{data['peak_bytes'][name] / 2**20:.1f}"])
    return [Table(title, ["step", "form", "ms", "/ dense", "MB"], rows)]


def _masked(dense: PreTrainedModel, index: Tensor) -> PreTrainedModel:
    model = copy.deepcopy(dense)
    for layer in locate_dense(model).layers:
        assert layer.mlp is not None
        mlp = MaskedMLP(getattr(layer.module, layer.mlp))
        mlp.index = index
        setattr(layer.module, layer.mlp, mlp)
    return model


def _forward(model: PreTrainedModel, ids: Tensor, options: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(ids, use_cache=False, **options).logits
    return logits


def _forward_backward(model: PreTrainedModel, ids: Tensor, options: dict[str, Any]) -> None:
    model(ids, use_cache=False, **options).logits.float().mean().backward()
    model.zero_grad()


def _decode(model: PreTrainedModel, ids: Tensor, options: dict[str, Any], *, tokens: int) -> Tensor:
    with torch.no_grad():
        output = model(ids[:, :8], use_cache=True, **options)
        for _ in range(tokens):
            following = output.logits[:, -1:].argmax(-1)
            output = model(following, cache=output.cache, use_cache=True)
    return following


def _optimizer(
    runs: dict[str, tuple[PreTrainedModel, dict[str, Any]]], ids: Tensor, passes: int, device: str
) -> dict[str, Any]:
    steps: dict[str, Callable[[], object]] = {}
    held: dict[str, int] = {}
    for name, (original, options) in runs.items():
        model = copy.deepcopy(original)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        model(ids[:, :8], use_cache=False, **options).logits.float().mean().backward()
        optimizer.step()
        states = [value for state in optimizer.state.values() for value in state.values()]
        held[name] = sum(value.numel() * value.element_size() for value in states)
        steps[name] = optimizer.step
    return _numbers(interleaved(steps, passes, device), held)


def _numbers(seconds: dict[str, list[float]], held: dict[str, int]) -> dict[str, Any]:
    return {
        "seconds": {name: summary(values) for name, values in seconds.items()},
        "ratio": ratios(seconds, "dense"),
        "peak_bytes": held,
    }
