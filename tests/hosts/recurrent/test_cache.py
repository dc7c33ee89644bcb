"""Cached calls equal whole ones; rows of a cache can be cut, repeated and reordered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import DynamicCache

from routelab.errors import HostError
from routelab.hosts.recurrent import RecurrentCache, RecurrentForCausalLM

KINDS: dict[str, Callable[[], RecurrentCache]] = {
    "dynamic": RecurrentCache,
    "static": lambda: RecurrentCache(max_length=12),
}


@pytest.fixture(params=sorted(KINDS))
def cache(request: pytest.FixtureRequest) -> RecurrentCache:
    return KINDS[request.param]()


@pytest.mark.parametrize("chunks", [(9,), (4, 5), (1,) * 9, (3, 1, 5)])
def test_chunks_equal_the_whole(model: RecurrentForCausalLM, cache: RecurrentCache, chunks: tuple[int, ...]) -> None:
    ids, mask = torch.randint(1, 61, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[0, :2] = 0
    expected = model(ids, attention_mask=mask, num_steps=3, seed=1, output_states=True)
    done, logits, states = 0, [], []
    for chunk in chunks:
        end = done + chunk
        output = model(
            ids[:, done:end], attention_mask=mask[:, :end], num_steps=3, seed=1, cache=cache, output_states=True
        )
        logits.append(output.logits)
        states.append(output.states)
        done = end
    real = mask.bool()
    torch.testing.assert_close(torch.cat(logits, 1)[real], expected.logits[real], atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cat(states, 2)[:, real], expected.states[:, real], atol=1e-4, rtol=0)
    assert cache.get_seq_length() == 9
    assert len(cache) == 2 + 3 * 2


def test_unpadded_chunks_need_no_mask(model: RecurrentForCausalLM, cache: RecurrentCache) -> None:
    ids = torch.randint(61, (2, 9))
    logits = [model(part, num_steps=2, cache=cache).logits for part in ids.split((5, 3, 1), dim=1)]
    torch.testing.assert_close(torch.cat(logits, 1), model(ids, num_steps=2).logits, atol=1e-4, rtol=0)


def test_crop_forgets_and_the_tokens_can_come_again(model: RecurrentForCausalLM, cache: RecurrentCache) -> None:
    ids = torch.randint(61, (2, 9))
    model(ids[:, :6], num_steps=2, cache=cache)
    model(torch.randint(61, (2, 2)), num_steps=2, cache=cache)
    cache.crop(-2)
    assert cache.get_seq_length() == 6
    again = model(ids[:, 6:], num_steps=2, cache=cache).logits
    torch.testing.assert_close(again, model(ids, num_steps=2).logits[:, 6:], atol=1e-4, rtol=0)


def test_rows_move(model: RecurrentForCausalLM, cache: RecurrentCache) -> None:
    ids, last = torch.randint(61, (2, 6)), torch.randint(61, (4, 1))
    model(ids, num_steps=2, cache=cache)
    cache.batch_repeat_interleave(2)
    order = torch.tensor([3, 0, 2, 1])
    cache.reorder_cache(order)
    rows = ids.repeat_interleave(2, 0)[order]
    output = model(last, num_steps=2, cache=cache).logits
    whole = torch.cat((rows, last), 1)
    torch.testing.assert_close(output, model(whole, num_steps=2).logits[:, -1:], atol=1e-4, rtol=0)
    cache.batch_select_indices(torch.tensor([2]))
    output = model(last[:1], num_steps=2, cache=cache).logits
    whole = torch.cat((whole[2:3], last[:1]), 1)
    torch.testing.assert_close(output, model(whole, num_steps=2).logits[:, -1:], atol=1e-4, rtol=0)


def test_reset(model: RecurrentForCausalLM, cache: RecurrentCache) -> None:
    ids = torch.randint(61, (1, 5))
    model(torch.randint(61, (2, 7)), num_steps=3, cache=cache)
    cache.reset()
    logits = model(ids, num_steps=2, cache=cache).logits
    torch.testing.assert_close(logits, model(ids, num_steps=2).logits, atol=1e-5, rtol=0)
    assert cache.get_seq_length() == 5


def test_another_number_of_steps_is_refused(model: RecurrentForCausalLM, cache: RecurrentCache) -> None:
    ids = torch.randint(61, (1, 5))
    model(ids, num_steps=3, cache=cache)
    with pytest.raises(HostError, match="num_steps=3 and is now asked for 4"):
        model(ids[:, :1], num_steps=4, cache=cache)


def test_bad_caches_are_refused(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (1, 5))
    with pytest.raises(HostError, match="DynamicCache has no slot per recurrence step"):
        model(ids, cache=DynamicCache())
    with pytest.raises(HostError, match="cache of 4 slots cannot hold 5"):
        model(ids, cache=RecurrentCache(max_length=4))
    static = RecurrentCache(max_length=9)
    model(ids.repeat(2, 1), cache=static)
    with pytest.raises(HostError, match="2 rows was given 1"):
        model(ids, cache=static)
    padded = RecurrentCache()
    model(ids, attention_mask=torch.tensor([[0, 1, 1, 1, 1]]), cache=padded)
    with pytest.raises(HostError, match="needs an attention_mask"):
        model(ids[:, :1], cache=padded)


def test_a_cache_is_made_only_when_asked(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (1, 5))
    assert model(ids).cache is None
    assert model(ids, use_cache=True).cache.get_seq_length() == 5
