"""The window operator against plain attention and against eager attention, which materialises the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from routelab.bench.timing import environment, interleaved, peak_bytes, ratios, summary
from routelab.errors import ConfigError
from routelab.ops.window import window_attention

Attention = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


class Table(NamedTuple):
    """One table of results, as text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def bench_window(
    lengths: Sequence[int] = (512, 1024, 2048, 4096),
    *,
    heads: int = 16,
    head_dim: int = 128,
    window: int = 40,
    head_dims: Sequence[int] = (64, 128, 192, 256),
    head_dims_length: int = 1024,
    passes: int = 9,
    layer_length: int | None = 2048,
    layer_passes: int = 3,
    dtype: str = "float32",
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time and peak memory of forward and of forward + backward, causal, batch 1, random inputs (seed 0).

    Contenders: ``window`` (:func:`routelab.ops.window.window_attention`), ``sdpa`` (output only) and ``eager``
    (scores, mask, float32 softmax, output, head average, band). Backward takes gradients of every result.

    Args:
        lengths: sequence lengths at ``head_dim``.
        head_dims: head sizes at ``head_dims_length`` tokens, without eager.
        passes: interleaved passes; times and ratios are medians and quartiles over them.
        layer_length: tokens for one OLMoE decoder layer of real width, AAR on against off; None leaves it out.
        layer_passes: interleaved passes over that layer, which takes seconds each.
        progress: called with the name of what is measured next.

    Returns:
        Plain data: ``settings``, ``environment``, ``lengths`` and ``head_dims`` (a list of cases each, with
        ``forward`` and ``forward+backward``: ``seconds``, ``ratio`` to sdpa, ``peak_bytes``), ``layer``.
    """
    if not hasattr(torch, dtype) or not getattr(torch, dtype).is_floating_point:
        raise ConfigError(f"dtype must be a floating torch dtype such as float32 or bfloat16, got {dtype!r}")
    if min(passes, layer_passes, *lengths, heads, head_dim, window) < 1:
        raise ConfigError("passes, lengths, heads, head_dim and window must be at least 1")
    kind = getattr(torch, dtype)

    def case(length: int, dim: int, names: Sequence[str]) -> dict[str, Any]:
        progress(f"{length} tokens, head size {dim}")
        return {"length": length, "head_dim": dim, **_case(length, heads, dim, window, names, passes, kind, device)}

    def layer() -> dict[str, Any] | None:
        if layer_length is None:
            return None
        from routelab.bench.olmoe_layer import bench_layer

        progress(f"one OLMoE layer, {layer_length} tokens")
        return bench_layer(layer_length, window=window, passes=layer_passes, dtype=dtype, device=device)

    return {
        "settings": {"batch": 1, "heads": heads, "window": window, "dtype": dtype, "passes": passes},
        "environment": environment(device),
        "lengths": [case(length, head_dim, ("sdpa", "window", "eager")) for length in lengths],
        "head_dims": [case(head_dims_length, dim, ("sdpa", "window")) for dim in head_dims],
        "layer": layer(),
    }


def window_tables(result: dict[str, Any]) -> list[Table]:
    """The result of :func:`bench_window` as tables: median, and quartiles of the ratios."""
    columns = ["n", "d", "pass", "SDPA ms", "window ms", "eager ms", "window / SDPA", "eager / window"]
    columns += ["SDPA MB", "window MB", "eager MB"]
    rows = [_row(case, step) for case in result["lengths"] + result["head_dims"] for step in _STEPS]
    settings, machine = result["settings"], result["environment"]
    title = (
        f"window attention: H={settings['heads']}, M={settings['window']}, {settings['dtype']}, "
        f"{machine['device']}, {machine['threads']} threads, {machine['clock']}, {settings['passes']} passes"
    )
    tables = [Table(title, columns, rows)]
    if result["layer"] is not None:
        layer = result["layer"]
        rows = [
            [step, *(_milliseconds(layer[step], name) for name in ("off", "on")), _spread(layer[step]["ratio"]["on"])]
            for step in _STEPS
        ]
        name = f"one OLMoE decoder layer ({layer['parameters'] / 1e6:.0f} M parameters), {layer['length']} tokens"
        tables.append(Table(name, ["pass", "AAR off ms", "AAR on ms", "on / off"], rows))
    return tables


_STEPS = ("forward", "forward+backward")


def eager_attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """What a host does under ``output_attentions``, and the band of the head average."""
    length = query.shape[2]
    mask = torch.full((length, length), torch.finfo(query.dtype).min, dtype=query.dtype, device=query.device).triu(1)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + mask
    attention = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    slots = torch.arange(length, device=query.device)[:, None] + torch.arange(1 - window, 1, device=query.device)
    band = attention.mean(1).gather(-1, slots.clamp_min(0)[None])
    return attention @ value, band.masked_fill(slots < 0, 0.0)


def _contender(name: str, window: int) -> Attention:
    if name == "window":
        return lambda q, k, v: window_attention(q, k, v, window)
    if name == "eager":
        return lambda q, k, v: eager_attention(q, k, v, window)
    return lambda q, k, v: (scaled_dot_product_attention(q, k, v, is_causal=True),)


def _case(
    length: int, heads: int, dim: int, window: int, names: Sequence[str], passes: int, dtype: torch.dtype, device: str
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    inputs = [draw(1, length, heads, dim).transpose(1, 2).requires_grad_() for _ in range(3)]
    grads = draw(1, length, heads, dim).transpose(1, 2), draw(1, length, window).float()

    def forward(attention: Attention) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return attention(*inputs)

    def both(attention: Attention) -> tuple[Tensor, ...]:
        results = attention(*inputs)
        matched = [grad.to(result.dtype) for grad, result in zip(grads, results, strict=False)]
        return torch.autograd.grad(results, inputs, matched)

    contenders = {name: _contender(name, window) for name in names}
    return {
        step: _measure(
            {name: partial(run, attention) for name, attention in contenders.items()}, "sdpa", passes, device
        )
        for step, run in zip(_STEPS, (forward, both), strict=True)
    }


def _measure(contenders: dict[str, Callable[[], object]], base: str, passes: int, device: str) -> dict[str, Any]:
    seconds = interleaved(contenders, passes, device)
    return {
        "seconds": {name: summary(values) for name, values in seconds.items()},
        "ratio": ratios(seconds, base),
        "peak_bytes": {name: peak_bytes(run, device) for name, run in contenders.items()},
    }


def _row(case: dict[str, Any], step: str) -> list[str]:
    data, names = case[step], ("sdpa", "window", "eager")
    ratio = data["ratio"]
    times = [_milliseconds(data, name) for name in names]
    memory = [f"{data['peak_bytes'][name] / 2**20:.1f}" if name in data["peak_bytes"] else "" for name in names]
    faster = ""
    if "eager" in data["seconds"]:
        faster = f"{data['seconds']['eager']['median'] / data['seconds']['window']['median']:.1f}"
    return [str(case["length"]), str(case["head_dim"]), step, *times, _spread(ratio["window"]), faster, *memory]


def _milliseconds(data: dict[str, Any], name: str) -> str:
    return f"{data['seconds'][name]['median'] * 1e3:.1f}" if name in data["seconds"] else ""


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f}-{ratio['q75']:.2f})"
