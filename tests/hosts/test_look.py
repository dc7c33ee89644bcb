"""A look changes nothing, and a patch answers for the router it stands in for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import PreTrainedModel

from routelab.errors import HostError, LayerError
from routelab.hosts.look import AttentionCall, looking_at_attention, patched_routing

MakeHost = Callable[..., PreTrainedModel]
IDS = torch.randint(3, 61, (1, 12), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_a_look_sees_every_softmax_attention_and_changes_nothing(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    before = model(input_ids=IDS).logits
    seen: list[AttentionCall] = []
    with looking_at_attention(model, seen.append):
        during = model(input_ids=IDS).logits
    assert torch.equal(before, during)
    assert torch.equal(before, model(input_ids=IDS).logits)
    assert [call.layer for call in seen] == ([1, 3] if family == "qwen3_5_moe_text" else [0, 1, 2, 3])
    assert seen[0].query.shape == (1, 4, 12, 8)
    assert seen[0].key.shape == (1, 2, 12, 8)
    assert seen[0].scale == pytest.approx(8**-0.5)


@torch.no_grad()
def test_own_logits_as_a_patch_change_nothing(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    output = model(input_ids=IDS, output_router_logits=True)
    with patched_routing(model, dict(enumerate(output.router_logits))):
        assert torch.equal(model(input_ids=IDS).logits, output.logits)
    other = {2: output.router_logits[2].flip(-1)}
    with patched_routing(model, other):
        assert not torch.equal(model(input_ids=IDS).logits, output.logits)
    assert torch.equal(model(input_ids=IDS).logits, output.logits)


@torch.no_grad()
def test_a_patch_that_does_not_fit_is_refused(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    with pytest.raises(LayerError, match=r"layers \[4\] have no router to patch"), patched_routing(model, {4: IDS}):
        pass
    with (
        pytest.raises(HostError, match=r"shape \(5, 8\), this forward needs \(12, 8\)"),
        patched_routing(model, {1: torch.zeros(5, 8)}),
    ):
        model(input_ids=IDS)
