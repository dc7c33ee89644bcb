"""What the core attention is told, and the mask it builds or does without."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from routelab.errors import HostError
from routelab.hosts.recurrent import CoreAttention, CoreCall, FullCoreAttention, RecurrentCache, RecurrentForCausalLM
from routelab.hosts.recurrent.core import CausalAttention


class Recorder(FullCoreAttention):
    """Full attention for ``steps`` steps, with a note of everything it was told."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.calls: list[CoreCall] = []
        self.attended: list[tuple[int, int, int, int]] = []
        self.ends = 0

    def begin(self, call: CoreCall) -> int:
        self.calls.append(call)
        return min(super().begin(call), self.steps)

    def attend(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.attended.append((step, block, query.shape[2], key.shape[2]))
        return super().attend(step, block, query, key, value)

    def end(self) -> None:
        super().end()
        self.ends += 1


def dense(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ value


@pytest.mark.parametrize("queries", [1, 3, 6])
@pytest.mark.parametrize("padding", ["none", "left", "right", "both"])
def test_full_attention_is_causal_over_real_slots(queries: int, padding: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, queries, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    real = torch.ones(2, 6, dtype=torch.bool)
    if padding in ("left", "both"):
        real[0, :2] = False
    if padding in ("right", "both"):
        real[1, 5:] = False
    attention = CausalAttention(queries, 6, None if padding == "none" else real)
    output = attention(query, key, value)
    allowed = torch.ones(6, 6).tril().bool()[None] & real[:, None]
    expected = dense(query, key, value, allowed[:, None, -queries:])
    rows = real[:, None, -queries:, None].expand_as(output)
    assert output.isfinite().all()
    torch.testing.assert_close(output[rows], expected[rows])


def test_no_mask_is_built_where_none_is_needed() -> None:
    real = torch.tensor([[True, True, False], [True, True, True]])
    assert CausalAttention(3, 3, None).unmasked
    assert CausalAttention(3, 3, real).unmasked, "causality alone keeps queries from padding at the end"
    assert CausalAttention(1, 3, None).unmasked
    assert not CausalAttention(3, 3, ~real).unmasked
    assert not CausalAttention(2, 3, None).unmasked


def test_the_model_tells_what_its_steps_share(model: RecurrentForCausalLM) -> None:
    recorder = Recorder(steps=99)
    model.core_attention = recorder
    assert model.transformer.core_attention is recorder
    ids, cache = torch.randint(1, 61, (2, 5)), RecurrentCache()
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[0, 0] = 0
    model(ids, attention_mask=mask[:, :5], num_steps=3, cache=cache)
    model(ids[:, :1], attention_mask=mask, num_steps=3, cache=cache)
    first, second = recorder.calls
    assert (first.num_steps, first.query_length, first.key_length, first.cached) == (3, 5, 5, False)
    assert (second.num_steps, second.query_length, second.key_length, second.cached) == (3, 1, 6, True)
    assert first.row_key is second.row_key is cache
    assert torch.equal(second.key_mask, mask.bool())
    assert recorder.attended[:6] == [(step, block, 5, 5) for step in (1, 2, 3) for block in (0, 1)]
    assert recorder.attended[6:] == [(step, block, 1, 6) for step in (1, 2, 3) for block in (0, 1)]
    assert recorder.ends == 2


def test_a_mask_without_padding_is_none(model: RecurrentForCausalLM) -> None:
    model.core_attention = recorder = Recorder(steps=99)
    model(torch.randint(61, (2, 5)), attention_mask=torch.ones(2, 5), num_steps=1)
    assert recorder.calls[0].key_mask is None
    assert recorder.calls[0].row_key is None


def test_fewer_steps_may_be_run(model: RecurrentForCausalLM) -> None:
    ids = torch.randint(61, (1, 5))
    expected = model(ids, num_steps=2).logits
    model.core_attention = Recorder(steps=2)
    output = model(ids, num_steps=9, output_states=True)
    assert len(output.states) == 2
    assert torch.equal(output.logits, expected)


def test_interface() -> None:
    with pytest.raises(TypeError):
        CoreAttention()
    with pytest.raises(HostError, match="before begin"):
        FullCoreAttention().attend(1, 0, *torch.randn(3, 1, 1, 2, 4))


def test_nothing_of_a_generation_is_kept(model: RecurrentForCausalLM) -> None:
    import gc
    import weakref

    cache = RecurrentCache()
    model(torch.randint(61, (1, 5)), num_steps=2, cache=cache)
    watched = weakref.ref(cache)
    del cache
    gc.collect()
    assert watched() is None
