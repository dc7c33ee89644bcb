"""One decision per sequence: what is pooled, that it stays, and that no reply is routed by its own tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

import routelab
from routelab.errors import HostError, TrainingError
from routelab.evaluate.loglikelihood import token_log_likelihoods
from routelab.methods.attachment import added_arguments
from routelab.study.experts import chosen_experts

MakeHost = Callable[..., PreTrainedModel]
SEQUENCE = routelab.TaskRoutingConfig(task_router=0, routing="sequence")
GREEDY: dict[str, Any] = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}


def tokens(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(3, 61, (batch, length), generator=torch.Generator().manual_seed(seed))


def sequence(make_host: MakeHost, family: str = "olmoe") -> PreTrainedModel:
    return routelab.attach(make_host(family), SEQUENCE)


class PooledRouter(nn.Module):
    """A router by the definition: the mean *state* of the prompt, one row of the batch after the other."""

    def __init__(self, router: nn.Module, prompt: Tensor, renormalise: bool) -> None:
        super().__init__()
        self.weight, self.top_k, self.prompt, self.renormalise = router.weight, router.top_k, prompt, renormalise

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length = self.prompt.shape
        rows = []
        for hidden, prompt in zip(hidden_states.reshape(batch, length, -1), self.prompt.bool(), strict=True):
            rows += [self.weight @ hidden[prompt].mean(0)] * length
        logits = torch.stack(rows)
        weights, chosen = logits.softmax(-1).topk(self.top_k)
        return logits, weights / weights.sum(-1, keepdim=True) if self.renormalise else weights, chosen


def by_definition(make_host: MakeHost, family: str, prompt: Tensor) -> PreTrainedModel:
    model = make_host(family)
    renormalise = routelab.attached(sequence(make_host, family))[0].host.renormalises
    for layer in model.model.layers:
        layer.mlp.gate = PooledRouter(layer.mlp.gate, prompt, renormalise)
    return model


@torch.no_grad()
def test_logits_equal_the_definition(make_host: MakeHost, family: str) -> None:
    """Two rows, the second padded on the left; four and two of their tokens are the prompt."""
    ids, mask, prompt = tokens(2, 9), torch.ones(2, 9, dtype=torch.long), torch.zeros(2, 9, dtype=torch.long)
    mask[1, :3] = 0
    prompt[0, :4] = prompt[1, 3:5] = 1
    given = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0), "use_cache": False}
    expected = by_definition(make_host, family, prompt)(ids, **given).logits
    model = sequence(make_host, family)
    found = model(ids, **given, prompt_mask=prompt).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=2e-5, rtol=1e-5)
    # Padding never counts, though the mask of the prompt names it.
    padded = model(ids, **given, prompt_mask=prompt | (1 - mask)).logits
    assert torch.equal(padded, found)
    host = routelab.detach(model)(ids, **given).logits
    assert (host - found).abs().max() > 1e-2, "pooling changed nothing: the test would be blind"
    assert torch.equal(host, make_host(family)(ids, **given).logits)


@torch.no_grad()
def test_every_token_of_a_sequence_visits_the_same_experts(make_host: MakeHost) -> None:
    model = sequence(make_host)
    experts, _ = chosen_experts(model, [tokens(1, 9)[0].tolist()], [4])
    assert (experts == experts[:, :1]).all()
    assert "prompt_mask" in added_arguments(model)


@torch.no_grad()
def test_a_reply_never_routes_itself(make_host: MakeHost) -> None:
    model = sequence(make_host)
    first, second = tokens(1, 10), tokens(1, 10)
    second[0, 7] = (first[0, 7] + 5) % 58 + 3
    prompt = (torch.arange(10) < 4)[None]
    one, two = (model(ids, prompt_mask=prompt, use_cache=False).logits for ids in (first, second))
    assert torch.equal(one[:, :7], two[:, :7])
    assert not torch.equal(one[:, 7:], two[:, 7:])
    # The labels say the same.
    labelled = model(first, labels=first.masked_fill(prompt, -100), use_cache=False)
    assert torch.equal(labelled.logits, one)


@torch.no_grad()
def test_decoding_with_a_cache_keeps_the_decision(make_host: MakeHost, family: str) -> None:
    model, ids = sequence(make_host, family), tokens(2, 9)
    prompt = (torch.arange(9) < 5)[None].expand(2, -1)
    whole = model(ids, prompt_mask=prompt, use_cache=False).logits
    step = model(ids[:, :5], use_cache=True)
    parts = [step.logits]
    for i in range(5, 9):
        step = model(ids[:, i : i + 1], cache=step.cache, use_cache=True)
        parts.append(step.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=2e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}])
def test_generate_follows_the_rows(make_host: MakeHost, options: dict[str, Any]) -> None:
    """A left-padded batch generates what each row generates alone, also where beams move the rows of the cache."""
    model, ids = sequence(make_host), tokens(2, 7)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    alone = [
        model.generate(row[None], attention_mask=torch.ones_like(row)[None], **GREEDY, **options)[0, -5:]
        for row in (ids[0], ids[1, 3:])
    ]
    both = model.generate(ids, attention_mask=mask, **GREEDY, **options)[:, -5:]
    assert torch.equal(both, torch.stack(alone))
    # Greedy decoding by whole forwards, in which the prompt is named, agrees.
    if not options:
        text = ids[:1]
        for _ in range(5):
            prompt = (torch.arange(text.shape[1]) < 7)[None]
            following = model(text, prompt_mask=prompt, use_cache=False).logits[:, -1].argmax(-1)
            text = torch.cat([text, following[:, None]], dim=1)
        assert torch.equal(text[0, -5:], alone[0])


@torch.no_grad()
def test_scored_text_does_not_decide(make_host: MakeHost) -> None:
    model = sequence(make_host)
    ids = tokens(1, 8)[0].tolist()
    scored = [False] * 5 + [True] * 3
    (total,) = token_log_likelihoods(model, [(ids, scored)])
    logits = model(torch.tensor([ids]), prompt_mask=(torch.arange(8) < 5)[None], use_cache=False).logits
    each = logits[0, 4:-1].log_softmax(-1).gather(-1, torch.tensor(ids[5:])[:, None])
    assert total == pytest.approx(float(each.sum()), abs=1e-4)


def test_losses_act_on_the_decision(make_host: MakeHost) -> None:
    config = routelab.TaskRoutingConfig(tasks=["a", "b"], routing="sequence", experts=[[0], [1]])
    model = routelab.attach(make_host("olmoe"), config).train()
    ids, prompt = tokens(2, 6), (torch.arange(6) < 3)[None].expand(2, -1)
    labels = torch.tensor([[0] * 6, [1] * 6])
    output = model(ids, task_ids=labels, prompt_mask=prompt, output_router_logits=True)
    rows = torch.stack(output.router_logits)[:, ::6].log_softmax(-1)  # one token per sequence stands for all
    expected = -(rows[:, 0, 0] + rows[:, 1, 1]).mean() / 2
    torch.testing.assert_close(output.router_loss, expected)
    output.router_loss.backward()
    assert all(float(p.grad.norm()) > 0 for p in routelab.attached(model)[0].parameters())


def test_what_cannot_be_decided_is_named(make_host: MakeHost) -> None:
    model, ids = sequence(make_host), tokens(1, 6)
    with pytest.raises(TrainingError, match="does not say what it is; pass prompt_mask"):
        model.train()(ids)
    model.eval()
    positions = torch.tensor([[0, 1, 2, 0, 1, 2]])
    with pytest.raises(HostError, match="several packed documents"):
        model(ids, position_ids=positions, use_cache=False)
    with pytest.raises(HostError, match="without a prompt token"):
        model(ids, prompt_mask=torch.zeros(1, 6, dtype=torch.long))
    foreign = make_host("olmoe")(ids, use_cache=True, cache=DynamicCache(config=model.config)).cache
    with pytest.raises(HostError, match="no routing decision for its rows"):
        model(ids[:, :1], cache=foreign)
    with pytest.raises(HostError, match="do not call its backbone alone"):
        sequence(make_host).base_model(ids)
