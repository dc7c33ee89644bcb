"""``generate``: cached equals recomputed, batched equals alone, and the recurrence's own arguments go through."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from routelab.errors import HostError
from routelab.hosts.recurrent import RecurrentCache, RecurrentForCausalLM


@pytest.fixture
def prompts() -> tuple[Tensor, Tensor]:
    """Three left-padded prompts and their mask."""
    torch.manual_seed(1)
    ids, mask = torch.randint(3, 61, (3, 8)), torch.ones(3, 8, dtype=torch.long)
    for row, pads in enumerate((5, 2, 0)):
        ids[row, :pads], mask[row, :pads] = 0, 0
    return ids, mask


def generate(model: RecurrentForCausalLM, ids: Tensor, mask: Tensor | None = None, **kwargs) -> Tensor:
    settings = {"max_new_tokens": 16, "do_sample": False, "num_steps": 3, "eos_token_id": None, **kwargs}
    return model.generate(ids, attention_mask=mask, **settings)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_batched_and_cached_equals_alone_and_recomputed(model, prompts, kind: str) -> None:
    ids, mask = prompts
    together = generate(model, ids, mask, cache_implementation=kind)
    assert together.shape == (3, 24)
    for row in range(3):
        alone = ids[row : row + 1, mask[row].bool()]
        recomputed = generate(model, alone, use_cache=False)
        assert torch.equal(together[row, 8:], recomputed[0, alone.shape[1] :])


def test_logits_of_cached_generation(model, prompts) -> None:
    ids, mask = prompts
    outputs = [
        generate(model, ids, mask, use_cache=cached, output_logits=True, return_dict_in_generate=True)
        for cached in (True, False)
    ]
    for cached, whole in zip(outputs[0].logits, outputs[1].logits, strict=True):
        torch.testing.assert_close(cached, whole, atol=1e-4, rtol=0)


def test_sampling_is_seeded_and_the_state_has_its_own_seed(model, prompts) -> None:
    def sample(torch_seed: int, **kwargs) -> Tensor:
        torch.manual_seed(torch_seed)
        return generate(model, *prompts, do_sample=True, num_steps=1, max_new_tokens=5, **kwargs)

    assert torch.equal(sample(1), sample(1))
    assert not torch.equal(sample(1), sample(2))
    assert not torch.equal(sample(1), sample(1, seed=9))


@pytest.mark.parametrize("use_cache", [True, False])
def test_beams(model, prompts, use_cache: bool) -> None:
    ids, mask = prompts
    beams = generate(model, ids, mask, num_beams=3, max_new_tokens=6, use_cache=use_cache)
    assert torch.equal(beams[1, 8:], generate(model, ids[1:2, 2:], num_beams=3, max_new_tokens=6)[0, 6:])


def test_rows_stop_early(model, prompts) -> None:
    ids, mask = prompts
    free = generate(model, ids, mask)
    end = free[0, 10].item()
    stopped = generate(model, ids, mask, eos_token_id=end, pad_token_id=0)
    first = (free[:, 8:] == end).int().argmax(1) + torch.where((free[:, 8:] == end).any(1), 0, 99)
    for row in range(3):
        kept = min(int(first[row]) + 1, stopped.shape[1] - 8)
        assert torch.equal(stopped[row, 8 : 8 + kept], free[row, 8 : 8 + kept])
        assert stopped[row, 8 + kept :].eq(0).all()


def test_given_states_cover_the_prompt_and_later_ones_are_drawn(model, prompts) -> None:
    ids, mask = prompts
    state = 3 * torch.randn(3, 8, 32)
    cached = generate(model, ids, mask, initial_state=state, seed=4, num_steps=1)
    assert torch.equal(cached, generate(model, ids, mask, initial_state=state, seed=4, num_steps=1, use_cache=False))
    drawn = model.transformer.initial_state((mask.cumsum(1) - 1).clamp_min(0), seed=4)
    assert torch.equal(
        generate(model, ids, mask, initial_state=drawn, seed=4, num_steps=1),
        generate(model, ids, mask, seed=4, num_steps=1),
    )


def test_a_cache_can_be_continued(model, prompts) -> None:
    ids = prompts[0][2:]
    cache = RecurrentCache()
    first = generate(model, ids, cache=cache, max_new_tokens=4)
    longer = torch.cat((first, torch.randint(3, 61, (1, 3))), dim=1)
    assert torch.equal(
        generate(model, longer, cache=cache, max_new_tokens=4), generate(model, longer, max_new_tokens=4)
    )


def test_bad_requests_are_refused(model, prompts) -> None:
    with pytest.raises(HostError, match="'offloaded' cannot hold"):
        generate(model, *prompts, cache_implementation="offloaded")
    with pytest.raises(HostError, match="not both"):
        generate(model, *prompts, cache_implementation="static", cache=RecurrentCache())
    with pytest.raises(HostError, match="num_steps=0"):
        generate(model, *prompts, num_steps=0)
    with pytest.raises(HostError, match="beyond the 64 positions"):
        generate(model, prompts[0][2:], max_new_tokens=60)
