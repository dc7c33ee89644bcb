"""Attention of a depth-recurrent model under WISE, step by step, against ``scaled_dot_product_attention``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from routelab.bench.timing import environment, interleaved, summary
from routelab.bench.window import Table
from routelab.errors import ConfigError
from routelab.ops.attention_lse import attention_lse
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_mass import block_mass
from routelab.ops.block_sparse import block_sparse, prepare

#: ``(length, block size)`` to a support, bool ``[H, Qb, Kb]``.
Supports = Callable[[int, int], Tensor]


def bench_working_set(
    lengths: Sequence[int] = (512, 1024, 2048, 4096, 8192),
    *,
    block_sizes: Sequence[int] = (16, 32, 64, 128),
    supports: Supports | None = None,
    heads: int = 8,
    head_dim: int = 96,
    density: float = 0.37,
    steps: int = 32,
    discovery_steps: int = 12,
    window: int = 4,
    backend: str = "auto",
    passes: int = 5,
    dtype: str = "float32",
    device: str = "cpu",
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Time the kinds of steps of one core block's attention, causal, batch 1, random inputs (seed 0).

    A trajectory of T ``steps`` has t_d ``discovery_steps``, the last ``window`` of them with the block mass; then the
    schedule is built once and T - t_d steps stay inside it. Its time, and that of the set-up-inclusive late reuse, are
    sums over the times of their steps within one pass, over those of as many SDPA steps in the same pass.

    Args:
        supports: working sets to attend in; None draws each block with the chance that gives ``density``, the diagonal
            always kept.
        density: of drawn supports: kept blocks over those that causality admits.
        backend: of :func:`routelab.ops.block_sparse.block_sparse`.
        passes: balanced passes (:func:`routelab.bench.timing.interleaved`).
        progress: called with the name of what is measured next.

    Returns:
        Plain data: ``settings``, ``environment`` and ``cases``, one per length and block size: ``backend`` that ran,
        ``density``, ``seconds`` of every kind of step, and as median and quartiles over passes ``outside`` and
        ``inside`` (a discovery step over SDPA's, outside and inside the window), ``speedup`` of the late reuse,
        ``share`` of the limit 1/density, ``trajectory`` (time over Full's) beside ``predicted`` (Eq. 9) and
        ``all_blocks`` (the same backend with every causal block, over SDPA).
    """
    if not hasattr(torch, dtype) or not getattr(torch, dtype).is_floating_point:
        raise ConfigError(f"dtype must be a floating torch dtype such as float32 or bfloat16, got {dtype!r}")
    if not 1 <= window <= discovery_steps < steps:
        raise ConfigError(f"need 1 <= window <= discovery_steps < steps, got {window}, {discovery_steps}, {steps}")
    if not 0.0 < density <= 1.0 or min(passes, heads, head_dim, *lengths, *block_sizes) < 1:
        raise ConfigError("density must lie in (0, 1], and passes, sizes and lengths be at least 1")
    draw = supports or random_supports(heads, density)
    kind = getattr(torch, dtype)

    def case(length: int, size: int) -> dict[str, Any]:
        progress(f"{length} tokens, blocks of {size}")
        generator = torch.Generator().manual_seed(0)
        shape = (1, length, heads, head_dim)
        inputs = [torch.randn(shape, generator=generator).to(device, kind).transpose(1, 2) for _ in range(3)]
        layout = draw(length, size)[None].to(device)
        return {"length": length, "block_size": size, **_measure(inputs, layout, size)}

    def _measure(inputs: list[Tensor], layout: Tensor, size: int) -> dict[str, Any]:
        query, key, value = inputs
        admissible = BlockGrid.of(query, key, size, None).admissible(layout.device)
        kept = float((layout & admissible).sum() / (admissible.sum() * heads))
        schedule = prepare(layout, query, key, block_size=size, backend=backend)
        everything = prepare(admissible.expand(layout.shape), query, key, block_size=size, backend=backend)

        def inside() -> Tensor:
            _, lse = attention_lse(query, key, value)
            return block_mass(query, key, lse, block_size=size)

        with torch.no_grad():
            seconds = interleaved(
                {
                    "sdpa": lambda: scaled_dot_product_attention(query, key, value, is_causal=True),
                    "outside": lambda: attention_lse(query, key, value),
                    "inside": inside,
                    "prepare": lambda: prepare(layout, query, key, block_size=size, backend=backend),
                    "reuse": lambda: block_sparse(query, key, value, schedule),
                    "all_blocks": lambda: block_sparse(query, key, value, everything),
                },
                passes,
                device,
            )
        alpha = discovery_steps / steps
        return {
            "backend": schedule.backend,
            "density": kept,
            "predicted": alpha + (1 - alpha) * kept,
            "seconds": {name: summary(values) for name, values in seconds.items()},
            **_ratios(seconds, kept),
        }

    def _ratios(seconds: dict[str, list[float]], kept: float) -> dict[str, dict[str, float]]:
        late = steps - discovery_steps
        one_pass: dict[str, list[float]] = {}
        for full, outside, inside, build, reuse, everything in zip(*seconds.values(), strict=True):
            sparse = build + late * reuse
            found = {
                "outside": outside / full,
                "inside": inside / full,
                "speedup": late * full / sparse,
                "share": late * full / sparse * kept,
                "trajectory": ((discovery_steps - window) * outside + window * inside + sparse) / (steps * full),
                "all_blocks": everything / full,
            }
            for name, value in found.items():
                one_pass.setdefault(name, []).append(value)
        return {name: summary(values) for name, values in one_pass.items()}

    return {
        "settings": {
            "batch": 1,
            "heads": heads,
            "head_dim": head_dim,
            "dtype": dtype,
            "steps": steps,
            "discovery_steps": discovery_steps,
            "window": window,
            "passes": passes,
            "supports": "random" if supports is None else "given",
        },
        "environment": environment(device),
        "cases": [case(length, size) for length in lengths for size in block_sizes],
    }


def random_supports(heads: int, density: float, seed: int = 0) -> Supports:
    """Supports of about that density among the causal blocks; the block on the diagonal is always in."""

    def draw(length: int, size: int) -> Tensor:
        blocks = -(-length // size)
        others = (blocks + 1) / 2 - 1  # causal blocks of a row besides the diagonal, on average
        chance = (density * (others + 1) - 1) / others if others else 1.0
        generator = torch.Generator().manual_seed(seed)
        kept = torch.rand(heads, blocks, blocks, generator=generator) < chance
        return (kept | torch.eye(blocks, dtype=torch.bool)).tril()

    return draw


def working_set_tables(result: dict[str, Any]) -> list[Table]:
    """The result of :func:`bench_working_set` as two tables: medians, and quartiles of the ratios."""
    reuse, trajectory = [], []
    for case in result["cases"]:
        where = [str(case["length"]), str(case["block_size"]), f"{case['density']:.3f}"]
        times = [f"{case['seconds'][name]['median'] * 1e3:.1f}" for name in ("sdpa", "reuse", "prepare")]
        reuse.append([*where, case["backend"], *times, *(_spread(case[x]) for x in ("speedup", "share", "all_blocks"))])
        predicted = f"{case['predicted']:.2f}"
        trajectory.append([*where, *(_spread(case[x]) for x in ("outside", "inside", "trajectory")), predicted])
    settings, machine = result["settings"], result["environment"]
    title = (
        f"working-set attention: H={settings['heads']}, d={settings['head_dim']}, {settings['dtype']}, "
        f"T={settings['steps']}, {settings['supports']} supports, {machine['device']}, {machine['threads']} threads, "
        f"{machine['clock']}, {settings['passes']} passes"
    )
    columns = ["n", "B", "density"]
    late = [*columns, "form", "SDPA ms", "reuse ms", "set-up ms", "speed-up", "of the limit", "all blocks / SDPA"]
    whole = [*columns, "outside / SDPA", "inside / SDPA", "trajectory / Full", "Eq. 9"]
    return [
        Table(f"{title}: late reuse", late, reuse),
        Table("discovery steps and the whole trajectory", whole, trajectory),
    ]


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f}-{ratio['q75']:.2f})"
