"""The mode of the prompt holds for every generated token, however generation moves rows and caches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase, StaticCache

import routelab
from routelab.errors import ModeError

NEW = 6


@pytest.fixture
def prompts(tokenizer: PreTrainedTokenizerBase, chat: Callable[..., str]) -> list[str]:
    return [
        chat(tokenizer, "a /think"),
        chat(tokenizer, "a longer question than that /no_think"),
        chat(tokenizer, "b /think"),
    ]


MODES = [1, 0, 1]


@pytest.fixture
def generate(locked: PreTrainedModel) -> Callable[..., torch.Tensor]:
    def run(batch: dict[str, torch.Tensor], model: PreTrainedModel = locked, **options: Any) -> torch.Tensor:
        settings = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, **options}
        return model.generate(**batch, **settings)[:, batch["input_ids"].shape[1] :]

    return run


@pytest.fixture
def expected(
    locked: PreTrainedModel, prompts: list[str], tokenizer: PreTrainedTokenizerBase, encode: Any
) -> torch.Tensor:
    """Greedy continuations, each prompt alone, every token by a full forward with its mode given."""
    rows = []
    for text, mode in zip(prompts, MODES, strict=True):
        ids = encode(tokenizer, text)["input_ids"]
        for _ in range(NEW):
            with torch.no_grad():
                logits = locked(ids, routing_index=[mode], use_cache=False).logits[:, -1]
            logits[:, locked.config.eos_token_id] = -torch.inf
            ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        rows.append(ids[0, -NEW:])
    return torch.stack(rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"prefill_chunk_size": 5},
        {"num_beams": 1, "num_return_sequences": 1},
    ],
)
def test_greedy(
    generate: Any,
    expected: torch.Tensor,
    prompts: list[str],
    tokenizer: PreTrainedTokenizerBase,
    encode: Any,
    options: Any,
) -> None:
    assert torch.equal(generate(encode(tokenizer, *prompts), **options), expected)


def test_modes_are_not_the_same(
    generate: Any, expected: torch.Tensor, prompts: list[str], tokenizer: PreTrainedTokenizerBase, encode: Any
) -> None:
    swapped = generate(encode(tokenizer, *prompts), routing_index=torch.tensor([0, 1, 0]))
    assert not (swapped == expected).all(dim=1).any()


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2}])
def test_beams(
    generate: Any, prompts: list[str], tokenizer: PreTrainedTokenizerBase, encode: Any, options: Any
) -> None:
    together = generate(encode(tokenizer, *prompts), **options)
    each = options.get("num_return_sequences", 1)
    for row, text in enumerate(prompts):
        alone = generate(encode(tokenizer, text), **options)
        assert torch.equal(together[row * each : (row + 1) * each], alone)


def test_several_samples(
    generate: Any, locked: PreTrainedModel, prompts: list[str], tokenizer: PreTrainedTokenizerBase, encode: Any
) -> None:
    """Scores of sampled continuations are those of a full forward in the mode of their prompt."""
    batch = encode(tokenizer, *prompts)
    torch.manual_seed(0)
    out = locked.generate(
        **batch,
        do_sample=True,
        num_return_sequences=2,
        max_new_tokens=4,
        output_logits=True,
        return_dict_in_generate=True,
    )
    mask = torch.cat([batch["attention_mask"].repeat_interleave(2, 0), torch.ones(6, 4, dtype=torch.long)], dim=1)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    index = torch.tensor(MODES).repeat_interleave(2)
    with torch.no_grad():
        full = locked(out.sequences, attention_mask=mask, position_ids=positions, routing_index=index).logits
    torch.testing.assert_close(torch.stack(out.logits, 1), full[:, -5:-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("assistant", ["dense", "itself", "lookup"])
def test_assisted(
    generate: Any,
    expected: torch.Tensor,
    locked: PreTrainedModel,
    make_dense: Any,
    prompts: list[str],
    tokenizer: PreTrainedTokenizerBase,
    encode: Any,
    assistant: str,
) -> None:
    dense = make_dense("qwen3")
    options = {"dense": {"assistant_model": dense}, "itself": {"assistant_model": locked}}.get(
        assistant, {"prompt_lookup_num_tokens": 3}
    )
    for row in (0, 1):
        assert torch.equal(generate(encode(tokenizer, prompts[row]), **options), expected[row : row + 1])
    assert "prepare_inputs_for_generation" not in vars(dense)


@torch.no_grad()
def test_decoding_by_hand(
    locked: PreTrainedModel, expected: torch.Tensor, prompts: list[str], tokenizer: PreTrainedTokenizerBase, encode: Any
) -> None:
    """The cache keeps the modes, follows its rows, and is not moved by what is written, not even by control words."""
    batch = encode(tokenizer, *prompts)
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp_min(0)
    output = locked(**batch, position_ids=positions, use_cache=True)
    cache, order = output.cache, torch.tensor([2, 0, 0, 1])
    assert isinstance(cache, DynamicCache)
    cache.reorder_cache(order)
    mask, position = batch["attention_mask"][order], positions[order, -1:]
    word = tokenizer(" /no_think /think /no_think", add_special_tokens=False, return_tensors="pt")["input_ids"].expand(
        4, -1
    )
    for column in range(word.shape[1]):
        mask = torch.cat([mask, torch.ones(4, 1, dtype=torch.long)], dim=1)
        position = position + 1
        step = locked(word[:, column : column + 1], attention_mask=mask, position_ids=position, cache=cache).logits[
            :, 0
        ]
    modes = torch.tensor(MODES)[order]
    ids = torch.cat([batch["input_ids"][order], word], dim=1)
    full = (mask.cumsum(-1) - 1).clamp_min(0)
    again = locked(ids, attention_mask=mask, position_ids=full, routing_index=modes, use_cache=False).logits[:, -1]
    torch.testing.assert_close(step, again, atol=1e-4, rtol=1e-4)
    with pytest.raises(ModeError, match="modes of 4 sequences, the call has 3"):
        locked(word[:3, :1], cache=cache)


@torch.no_grad()
def test_rows_of_a_cache(locked: PreTrainedModel) -> None:
    from routelab.hosts.cache_rows import row_modes

    cache = locked(torch.arange(3, 9).reshape(2, 3), routing_index=torch.tensor([1, 0]), use_cache=True).cache
    cache.batch_repeat_interleave(2)
    assert row_modes(cache).modes == (1, 1, 0, 0)
    cache.batch_select_indices(torch.tensor([1, 2]))
    assert row_modes(cache).modes == (1, 0)
    copied = copy.deepcopy(cache)
    cache.batch_select_indices(torch.tensor([False, True]))
    assert (row_modes(cache).modes, row_modes(copied).modes) == ((0,), (1, 0))
    static = StaticCache(config=locked.config, max_cache_len=8)
    locked(torch.arange(3, 6)[None], routing_index=[1], cache=static)
    assert row_modes(static).modes == (1,)
    static.reset()
    assert row_modes(static) is None


def test_a_conversation_continues_in_the_mode_of_its_latest_turn(
    locked: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chat: Any, encode: Any
) -> None:
    first = encode(tokenizer, chat(tokenizer, "a /think"))
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    out = locked.generate(**first, **options, return_dict_in_generate=True)
    says = tokenizer.decode(out.sequences[0, first["input_ids"].shape[1] :])
    for turn, mode in (("b /no_think", 0), ("b", 1)):
        text = chat(tokenizer, "a /think", "PLACE", turn).replace("PLACE", says)
        tail = tokenizer(text.split(says, 1)[1], add_special_tokens=False, return_tensors="pt")["input_ids"]
        ids = torch.cat([out.sequences, tail], dim=1)
        assert routelab.resolve_modes(ids, tokenizer).tolist() == [mode]
        cache = copy.deepcopy(out.cache)
        continued = locked.generate(ids, attention_mask=torch.ones_like(ids), cache=cache, **options)
        given = locked.generate(
            ids, attention_mask=torch.ones_like(ids), cache=copy.deepcopy(out.cache), routing_index=[mode], **options
        )
        other = locked.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            cache=copy.deepcopy(out.cache),
            routing_index=[1 - mode],
            **options,
        )
        assert torch.equal(continued, given)
        assert not torch.equal(continued, other)


def test_generate_refuses_a_prompt_without_a_word(
    locked: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chat: Any, encode: Any
) -> None:
    with pytest.raises(ModeError, match="row 1 of 2 names no mode"):
        locked.generate(**encode(tokenizer, chat(tokenizer, "a /think"), chat(tokenizer, "b")), max_new_tokens=1)
