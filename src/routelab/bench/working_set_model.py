"""What working sets save of a whole model: a block of Huginn's real width, and the memory of a whole host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from routelab.bench.timing import interleaved, peak_bytes, summary
from routelab.bench.window import Table
from routelab.bench.working_set import Supports, random_supports
from routelab.data.mini_world import MiniWorld
from routelab.errors import HostError
from routelab.hosts.loading import load_host
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.hosts.recurrent.layers import Rotation, SandwichBlock
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.engine import running
from routelab.ops.block_sparse import block_sparse, prepare

#: Tokens of the prompt whose supports are enlarged.
SEEN = 1024


def host_supports(name: str, heads: int) -> Supports:
    """Supports that a host really finds, ``(length, block size)`` to bool ``[heads, Qb, Kb]``.

    The host reads 1,024 tokens of a mini-world paragraph; the working sets of its core blocks and heads, one after the
    other and over again, become the heads, and each is enlarged to the length, block to nearest block.

    Raises:
        HostError: the host is not depth-recurrent.
    """
    model, tokenizer = load_host(name, dtype=torch.float32)
    if not isinstance(model, RecurrentForCausalLM):
        raise HostError(f"{name} has no recurrent core, so no working sets; try mini-recurrent")
    text = MiniWorld().paragraphs("test", 1, sentences=120, hops=2, draw="bench")[0]["context"]
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"][:, :SEEN]

    def supports(length: int, size: int) -> Tensor:
        with torch.no_grad(), running(model, WISEConfig(block_size=size), record=True) as engine:
            model(ids, num_steps=WISEConfig().discovery_steps + 1, use_cache=False, logits_to_keep=1)
        found = engine.records[0].working_sets
        assert found is not None
        small = found[:, 0].flatten(0, 1)
        blocks = -(-length // size)
        place = torch.arange(blocks) * small.shape[-1] // blocks
        enlarged = small[torch.arange(heads) % len(small)][:, place][:, :, place]
        return (enlarged | torch.eye(blocks, dtype=torch.bool)).tril()

    return supports


def bench_block(
    length: int = 2048,
    *,
    block_size: int = 32,
    density: float = 0.37,
    passes: int = 3,
    config: RecurrentConfig | None = None,
) -> dict[str, Any]:
    """Time one block of a recurrent core (default: Huginn-0125, 5,280 wide, 55 heads of 96) with full attention and
    inside random supports, float32; attention is only a part of it.

    Returns:
        Plain data: ``seconds`` of the block and of its attention alone under either, and ``speedup`` of the block.
    """
    config = config or RecurrentConfig(architecture="huginn")
    torch.manual_seed(0)
    block = SandwichBlock(config).eval()
    hidden = torch.randn(1, length, config.n_embd)
    rotation = Rotation.of(torch.arange(length)[None], config, hidden.dtype)
    layout = random_supports(config.n_heads, density)(length, block_size)[None]
    heads = [torch.randn(1, config.n_heads, length, config.head_dim) for _ in range(3)]
    schedule = prepare(layout, heads[0], heads[1], block_size=block_size)

    def full(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=True)

    def inside(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return block_sparse(query, key, value, schedule)

    with torch.no_grad():
        seconds = interleaved(
            {
                "block, full": lambda: block(hidden, rotation, full),
                "block, inside": lambda: block(hidden, rotation, inside),
                "attention, full": lambda: full(*heads),
                "attention, inside": lambda: inside(*heads),
            },
            passes,
            "cpu",
        )
    pairs = zip(seconds["block, full"], seconds["block, inside"], strict=True)
    return {
        "length": length,
        "block_size": block_size,
        "density": density,
        "width": config.n_embd,
        "backend": schedule.backend,
        "seconds": {name: summary(values) for name, values in seconds.items()},
        "speedup": summary([before / after for before, after in pairs]),
    }


def bench_memory(name: str, length: int = 8192, *, num_steps: int = 16, block_size: int = 32) -> dict[str, Any]:
    """Peak memory of a forward of a host over random ids, with full attention (SDPA) and with WISE, in bytes.

    Raises:
        HostError: the host is not depth-recurrent.
    """
    model, _ = load_host(name, dtype=torch.float32)
    if not isinstance(model, RecurrentForCausalLM):
        raise HostError(f"{name} has no recurrent core; try mini-recurrent")
    ids = torch.randint(model.config.vocab_size, (1, length), generator=torch.Generator().manual_seed(0))

    def forward() -> Any:
        return model(ids, num_steps=num_steps, use_cache=False, logits_to_keep=1)

    with torch.no_grad():
        peaks = {"full": peak_bytes(forward, "cpu")}
        with running(model, WISEConfig(block_size=block_size)):
            peaks["wise"] = peak_bytes(forward, "cpu")
    return {"host": name, "length": length, "num_steps": num_steps, "block_size": block_size, "bytes": peaks}


def block_table(block: dict[str, Any]) -> Table:
    """The result of :func:`bench_block`."""
    rows = [
        [part, *(f"{block['seconds'][f'{part}, {how}']['median']:.2f}" for how in ("full", "inside"))]
        for part in ("block", "attention")
    ]
    title = f"a block {block['width']} wide, {block['length']} tokens, density {block['density']}, {block['backend']}"
    return Table(title, ["part", "full s", "inside s"], rows)


def memory_table(memory: dict[str, Any]) -> Table:
    """The result of :func:`bench_memory`."""
    full, wise = memory["bytes"]["full"], memory["bytes"]["wise"]
    title = f"peak memory of {memory['host']}, {memory['length']} tokens, {memory['num_steps']} steps"
    return Table(
        title, ["full MB", "WISE MB", "ratio"], [[f"{full / 1e6:.0f}", f"{wise / 1e6:.0f}", f"{wise / full:.2f}"]]
    )
