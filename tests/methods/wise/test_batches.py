"""Padding, batches and caches: a row is the same alone and in company, and generation is what its form promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from routelab.hosts.recurrent import CoreCall, RecurrentForCausalLM
from routelab.methods.wise.config import CONDITIONS, WISEConfig
from routelab.methods.wise.engine import running
from routelab.methods.wise.rows import Rows

CONFIG = WISEConfig(discovery_steps=3, window=2, block_size=8, mass=0.6)
STEPS = 5
LENGTHS = (37, 21, 4)
PROMPTS = [torch.randint(1, 64, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
MakeRecurrent = Callable[..., RecurrentForCausalLM]
EXTENSIONS = [
    replace(CONFIG, discovery="adaptive", discovery_steps=4, window=1),
    replace(CONFIG, discovery="margin", discovery_steps=4),
    replace(CONFIG, causal=True),
]
VARIANTS = [*(replace(CONFIG, condition=condition) for condition in CONDITIONS), *EXTENSIONS]
# Prefill is where conditions differ; decoding takes the same path for all, but for the weights that freeze keeps.
DECODED = [replace(CONFIG, condition=condition) for condition in ("wise", "freeze", "size_matched", "full")]


def padded(prompts: list[Tensor], side: str) -> tuple[Tensor, Tensor]:
    longest = max(map(len, prompts))
    ids, mask = torch.zeros(len(prompts), longest, dtype=torch.long), torch.zeros(len(prompts), longest)
    for row, prompt in enumerate(prompts):
        place = slice(longest - len(prompt), None) if side == "left" else slice(len(prompt))
        ids[row, place], mask[row, place] = prompt, 1
    return ids, mask.long()


def name(config: WISEConfig) -> str:
    return f"{config.condition}-{config.discovery}-{'causal' if config.causal else 'block'}"


@pytest.mark.parametrize(
    ("config", "side"),
    [*((config, "left") for config in VARIANTS), (CONFIG, "right"), (EXTENSIONS[-1], "right")],
    ids=lambda value: value if isinstance(value, str) else name(value),
)
@torch.no_grad()
def test_a_batch_equals_each_alone(make_recurrent: MakeRecurrent, config: WISEConfig, side: str) -> None:
    model = make_recurrent("llama")
    ids, mask = padded(PROMPTS, side)
    with running(model, config, record=True) as engine:
        together = model(ids, attention_mask=mask, num_steps=STEPS).logits
        batch = engine.records[-1]
        for row, prompt in enumerate(PROMPTS):
            alone = model(prompt[None], num_steps=STEPS).logits[0]
            assert (together[row][mask[row].bool()] - alone).abs().max() < 1e-4
            record = engine.records[-1]
            if batch.supports is not None:
                assert record.supports is not None
                queries, keys = record.supports.shape[-2:]
                own = batch.supports[:, row]
                assert torch.equal(own[..., :queries, :keys], record.supports[:, 0])
                assert not own[..., queries:, :].any(), "a block of padding"
                assert not own[..., keys:].any(), "a block of padding"
    assert together.isfinite().all()


@torch.no_grad()
def generate(model: RecurrentForCausalLM, ids: Tensor, mask: Tensor, given: Tensor | None) -> tuple[Tensor, Tensor]:
    """17 logits after a prompt ``[B, 17, V]`` and the 16 tokens between them, greedy or given, with a cache."""
    output = model(ids, attention_mask=mask, num_steps=STEPS, use_cache=True)
    logits = [output.logits[:, -1]]
    tokens: list[Tensor] = []
    for place in range(16):
        tokens.append(logits[-1].argmax(-1) if given is None else given[:, place])
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        output = model(tokens[-1][:, None], attention_mask=mask, num_steps=STEPS, cache=output.cache)
        logits.append(output.logits[:, -1])
    return torch.stack(logits, 1), torch.stack(tokens, 1)


@pytest.mark.parametrize("config", [*DECODED, *EXTENSIONS], ids=name)
@torch.no_grad()
def test_generation_in_a_batch_equals_each_alone(make_recurrent: MakeRecurrent, config: WISEConfig) -> None:
    model = make_recurrent("llama")
    with running(model, config) as engine:
        together, tokens = generate(model, *padded(PROMPTS[:2], "left"), given=None)
        if config.condition not in ("full", "truncate"):
            assert engine.last is not None
            assert engine.last.backend == "cache"
        alone, _ = generate(model, PROMPTS[1][None], torch.ones_like(PROMPTS[1][None]), tokens[1:])
    assert (together[1:] - alone).abs().max() < 1e-4


@pytest.mark.parametrize("config", [*DECODED, replace(CONFIG, condition="random"), *EXTENSIONS[:2]], ids=name)
@torch.no_grad()
def test_causal_generation_equals_recomputing_the_prefix(make_recurrent: MakeRecurrent, config: WISEConfig) -> None:
    model = make_recurrent("huginn" if config.condition == "wise" else "llama")
    prompt = PROMPTS[1][None]
    with running(model, replace(config, causal=True)):
        cached, tokens = generate(model, prompt, torch.ones_like(prompt), given=None)
        each = [model(torch.cat([prompt, tokens[:, :n]], 1), num_steps=STEPS).logits for n in (0, 7, 16)]
    assert (cached[:, [0, 7, 16]] - torch.stack([logits[:, -1] for logits in each], 1)).abs().max() < 1e-4
    assert (cached - each[-1][:, prompt.shape[1] - 1 :]).abs().max() < 1e-4


@torch.no_grad()
def test_chunked_prefill_of_padded_rows(recurrent: RecurrentForCausalLM) -> None:
    """Rows that do not end together behind a cache; the causal form gives the same in chunks."""
    config = replace(CONFIG, causal=True)
    ids, mask = padded(PROMPTS, "left")
    with running(recurrent, config):
        whole = recurrent(ids, attention_mask=mask, num_steps=STEPS).logits
        output = recurrent(ids[:, :10], attention_mask=mask[:, :10], num_steps=STEPS, use_cache=True)
        chunks = [output.logits]
        for start, stop in ((10, 23), (23, 37)):
            output = recurrent(ids[:, start:stop], attention_mask=mask[:, :stop], num_steps=STEPS, cache=output.cache)
            chunks.append(output.logits)
    real = mask.bool()
    assert (torch.cat(chunks, 1)[real] - whole[real]).abs().max() < 1e-4


@torch.no_grad()
def test_generate_takes_the_same_tokens(recurrent: RecurrentForCausalLM) -> None:
    ids, mask = padded(PROMPTS, "left")
    with running(recurrent, CONFIG):
        _, tokens = generate(recurrent, ids, mask, given=None)
        written = recurrent.generate(
            ids,
            attention_mask=mask,
            num_steps=STEPS,
            max_new_tokens=16,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    assert torch.equal(written[:, ids.shape[1] :], tokens)


def test_rows_lie_on_their_own_grid() -> None:
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1], [1] * 11, [1] * 9 + [0] * 2]).bool()
    rows = Rows(CoreCall(1, 11, 11, mask, False, None), 3, mask.device, block_size=4, query_block=4)
    assert rows.lengths.tolist() == [8, 11, 9]
    assert (rows.query_blocks, rows.key_blocks) == (3, 3)
    tril = torch.ones(3, 3).tril().bool()
    assert torch.equal(rows.allowed[1, 0], tril)
    assert torch.equal(rows.allowed[2, 0], tril)
    assert torch.equal(rows.allowed[0, 0], tril & torch.tensor([[True], [True], [False]]))
    (part,) = rows.parts
    slots = torch.arange(11.0).expand(3, 1, 11)[..., None]
    shifted = part.take_keys(slots)
    assert shifted[0, 0, :8, 0].tolist() == list(range(3, 11))
    assert shifted[2, 0, :9, 0].tolist() == list(range(9))
    assert torch.equal(part.give_back(shifted)[:, 0, :, 0][mask], slots[:, 0, :, 0][mask])


def test_rows_behind_a_cache() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8]).bool()
    call = CoreCall(1, 3, 8, mask, True, None)
    rows = Rows(call, 2, mask.device, block_size=4, query_block=1)
    assert rows.starts.tolist() == [3, 5]
    assert rows.absolute.tolist() == [[3, 4, 5], [5, 6, 7]]
    assert rows.allowed[0, 0].tolist() == [[True, False], [True, True], [True, True]]
    assert [part.grid for part in rows.parts] == [(3, 2), (3, 2)]
    one = Rows(CoreCall(1, 1, 8, mask, True, None), 2, mask.device, block_size=4, query_block=4)
    assert one.slot_blocks.tolist() == [[2, 2, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]]
    assert one.absolute.tolist() == [[1], [1]]
