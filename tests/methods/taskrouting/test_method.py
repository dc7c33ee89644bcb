"""Task routing in real model classes, for every family: losses from the definition, labels, what it leaves alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

import routelab
from routelab.errors import ConfigError, ConflictError, HostError, LayerError, TrainingError
from routelab.methods.attachment import added_arguments, task_names

MakeHost = Callable[..., PreTrainedModel]
Config = routelab.TaskRoutingConfig
TASKS = ("one", "two")


def tokens(batch: int = 2, length: int = 9, seed: int = 0) -> Tensor:
    return torch.randint(3, 61, (batch, length), generator=torch.Generator().manual_seed(seed))


def attached(make_host: MakeHost, family: str = "olmoe", **values: Any) -> PreTrainedModel:
    host: dict[str, Any] = values.pop("host", {})
    return routelab.attach(make_host(family, **host), Config(**{"tasks": TASKS, **values}))


def routers_see(model: PreTrainedModel, run: Callable[[], Any]) -> tuple[list[Tensor], Any]:
    """Run something and return the raw logits of every router, taken at the routers, beside what it returned."""
    seen: list[Tensor] = []
    handles = [
        layer.mlp.gate.register_forward_hook(lambda m, a, output: seen.append(output[0]))
        for layer in model.model.layers
    ]
    result = run()
    for handle in handles:
        handle.remove()
    return seen, result


def by_hand(seen: list[Tensor], layers: list[int], groups: list[set[int]], labels: Tensor) -> float:
    """The task-router loss from probabilities, token by token."""
    losses = []
    for index in layers:
        p = seen[index].detach().double().softmax(-1).tolist()
        inside = [sum(p[t][e] for e in groups[k]) for t, k in enumerate(labels.flatten().tolist()) if k >= 0]
        losses.append(-sum(map(math.log, inside)) / len(inside))
    return sum(losses) / len(losses)


def test_the_task_router_loss_is_the_definition(make_host: MakeHost, family: str) -> None:
    model = attached(make_host, family, layers=[1, 3], task_router=0.5).train()
    ids = tokens()
    labels = torch.tensor([[0] * 9, [1] * 6 + [-100] * 3])
    seen, output = routers_see(model, lambda: model(ids, labels=ids, task_ids=labels))
    # Three experts are visited per token, so task 0 owns 0, 1, 2 and task 1 owns 3, 4, 5.
    expected = by_hand(seen, [1, 3], [{0, 1, 2}, {3, 4, 5}], labels)
    assert float(output.router_losses["task_router"]) == pytest.approx(expected, rel=1e-5)
    assert output.router_loss.item() == pytest.approx(0.5 * expected, rel=1e-5)
    plain = make_host(family).train()(ids, labels=ids).loss
    torch.testing.assert_close(output.loss, plain + output.router_loss)
    assert output.logits.shape == (2, 9, 61)


def test_both_losses_add_up_and_train_only_routers(make_host: MakeHost, family: str) -> None:
    model = attached(make_host, family, load_balance=0.25).train()
    ids, labels = tokens(), torch.zeros(2, 9, dtype=torch.long)
    output = model(ids, labels=ids, task_ids=labels)
    parts = output.router_losses
    assert output.router_loss.item() == pytest.approx(float(parts["task_router"] + 0.25 * parts["load_balance"]))
    output.router_loss.backward()
    with_gradient = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert with_gradient == {f"model.layers.{i}.mlp.gate.weight" for i in range(4)}


def test_load_balance_is_the_hosts_own_on_one_layer(make_host: MakeHost) -> None:
    model = attached(make_host, task_router=0, load_balance=1.0, tasks=(), host={"num_hidden_layers": 1}).train()
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    ids = tokens()
    output = model(ids, attention_mask=mask, output_router_logits=True)
    torch.testing.assert_close(output.router_losses["load_balance"], output.aux_loss.detach())
    # A packed row has no mask: token_mask says the same.
    positions = torch.cat([torch.arange(5), torch.arange(4)])[None]
    packed = model(ids[:1], position_ids=positions, token_mask=(positions[0] < 4)[None], use_cache=False)
    assert float(packed.router_losses["load_balance"]) > 0


@pytest.mark.parametrize("given", [None, torch.full((2, 9), -100)])
def test_no_label_is_an_error_in_training_and_nothing_in_evaluation(make_host: MakeHost, given: Tensor | None) -> None:
    model = attached(make_host)
    arguments = {} if given is None else {"task_ids": given}
    with pytest.raises(TrainingError, match="this batch has no task label; pass task_ids"):
        model.train()(tokens(), **arguments)
    output = model.eval()(tokens())
    assert not hasattr(output, "router_loss")
    assert output.router_logits is None
    labelled = model(tokens(), task_ids=torch.zeros(2, 9, dtype=torch.long))
    assert labelled.router_loss.item() > 0


@pytest.mark.parametrize("label", [2, -1])
def test_labels_outside_the_tasks_are_named(make_host: MakeHost, label: int) -> None:
    model = attached(make_host).train()
    with pytest.raises(TrainingError, match=rf"task_ids holds {label}; the tasks are 0 to 1 \(one, two\)"):
        model(tokens(), task_ids=torch.full((2, 9), label))
    with pytest.raises(HostError, match=r"task_ids has shape \(2, 8\); this call has 2 rows of 9 tokens"):
        model(tokens(), task_ids=torch.zeros(2, 8, dtype=torch.long))


@torch.no_grad()
def test_attaching_changes_no_logit_and_detach_gives_the_host_back(make_host: MakeHost, family: str) -> None:
    host, ids = make_host(family), tokens()
    before = host(ids).logits
    model = routelab.attach(host, Config(tasks=TASKS, load_balance=0.1))
    assert torch.equal(model(ids).logits, before)
    for parameter in routelab.attached(model)[0].parameters():
        parameter.add_(torch.randn_like(parameter))
    assert not torch.equal(model(ids).logits, before)
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in (model, model.base_model)]
    routelab.detach(model)
    assert torch.equal(model(ids).logits, before)
    after = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in (model, model.base_model)]
    assert all(a < b for a, b in zip(after, hooks, strict=True))


def test_gradient_checkpointing_gives_the_same_gradients(make_host: MakeHost) -> None:
    ids, labels = tokens(), torch.ones(2, 9, dtype=torch.long)

    def gradients(checkpointing: bool) -> list[Tensor]:
        model = attached(make_host, load_balance=0.5).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            model.enable_input_require_grads()
        model(ids, labels=ids, task_ids=labels, use_cache=False).loss.backward()
        return [parameter.grad for parameter in routelab.attached(model)[0].parameters()]

    for plain, checkpointed in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(checkpointed, plain, atol=1e-6, rtol=1e-5)


def test_a_copy_of_the_model_is_its_own(make_host: MakeHost) -> None:
    model = attached(make_host)
    twin = copy.deepcopy(model)
    routelab.detach(model)
    output = twin.train()(tokens(), task_ids=torch.zeros(2, 9, dtype=torch.long))
    assert float(output.router_loss) > 0
    routelab.detach(twin)
    assert torch.equal(twin.eval()(tokens()).logits, model(tokens()).logits)


def test_generate_is_untouched(make_host: MakeHost) -> None:
    host = make_host("olmoe")
    expected = host.generate(tokens(1), max_new_tokens=4, do_sample=False)
    model = routelab.attach(host, Config(tasks=TASKS))
    assert torch.equal(model.generate(tokens(1), max_new_tokens=4, do_sample=False), expected)
    static = model.generate(tokens(1), max_new_tokens=4, do_sample=False, cache_implementation="static")
    assert torch.equal(static, expected)


def test_what_it_matched(make_host: MakeHost) -> None:
    model = attached(make_host, experts=[[0, 7], [2]], layers=[0, 2])
    summary = routelab.attached(model)[0].summary()
    assert summary.layers == (0, 2)
    assert summary.modules == ("model.layers.0.mlp.gate", "model.layers.2.mlp.gate")
    assert (summary.new_parameters, summary.trainable_parameters) == (0, 4 * 8 * 32)
    assert summary.details["experts"] == {"one": [0, 7], "two": [2]}
    assert (added_arguments(model), task_names(model)) == ({"task_ids"}, TASKS)


def test_top_1_without_a_language_model_gradient_is_reported_and_trains_by_its_own_loss(make_host: MakeHost) -> None:
    top_1 = {"num_experts_per_tok": 1, "norm_topk_prob": True}
    model = attached(make_host, "qwen3_moe", host=top_1).train()
    assert "only the losses above" in routelab.attached(model)[0].summary().details["language_model_gradient"]
    ids, labels = tokens(), torch.zeros(2, 9, dtype=torch.long)
    gate = model.model.layers[-1].mlp.gate.weight
    output = model(ids, labels=ids, task_ids=labels)
    (from_language,) = torch.autograd.grad(output.loss - output.router_loss, gate, retain_graph=True)
    (from_router,) = torch.autograd.grad(output.router_loss, gate)
    assert float(from_language.norm()) < 1e-6 < 1e-3 < float(from_router.norm())
    with pytest.raises(HostError, match="give every layer a loss"):
        attached(make_host, "qwen3_moe", host=top_1, layers=[1])


def test_bad_requests_are_named(make_host: MakeHost) -> None:
    with pytest.raises(LayerError, match="layers 9 have no router here; layers that have one: 0, 1, 2, 3"):
        attached(make_host, layers=[9])
    with pytest.raises(ConfigError, match="sends task 1 to expert 8; there are experts 0 to 7"):
        attached(make_host, experts=[0, 8])


def pair(make_host: MakeHost, order: list[int]) -> PreTrainedModel:
    configs = [routelab.AARConfig(layers=[1, 3], window=5), Config(tasks=TASKS)]
    model = make_host("olmoe")
    for i in order:
        routelab.attach(model, configs[i])
    return model


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_with_aar_in_either_order(make_host: MakeHost, order: list[int], tmp_path: Path) -> None:
    """AAR decides, task routing adds its loss on AAR's own logits; saved, loaded and detached as a pair."""
    host = make_host("olmoe")
    ids, labels = tokens(), torch.zeros(2, 9, dtype=torch.long)
    model = pair(make_host, order).train()
    seen, output = routers_see(model, lambda: model(ids, labels=ids, task_ids=labels))
    expected = by_hand(seen, [0, 1, 2, 3], [{0, 1, 2}, {3, 4, 5}], labels)
    assert float(output.router_loss) == pytest.approx(expected, rel=1e-5)
    output.router_loss.backward()
    added = [
        p for name, p in routelab.attached(model)[order.index(0)].named_parameters() if "attention_router.A" in name
    ]
    assert all(float(p.grad.norm()) > 0 for p in added), "the loss must reach AAR's own parameters"

    with torch.no_grad():
        for parameter in {id(p): p for m in routelab.attached(model) for p in m.parameters()}.values():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.eval()
    routelab.save(model, tmp_path)
    stored = load_file(tmp_path / "routing.safetensors")
    assert sum("router.weight" in name for name in stored) == 4, "the shared weights are stored once"
    loaded = routelab.load(tmp_path, make_host("olmoe"))
    assert [method.name for method in routelab.attached(loaded)] == [["aar", "taskrouting"][i] for i in order]
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    for each in (model, loaded):
        assert torch.equal(routelab.detach(each)(ids).logits, host(ids).logits)


@pytest.mark.parametrize(
    ("first", "second", "part"),
    [
        (routelab.RoutingOnlyConfig(), Config(tasks=TASKS), "router objective"),
        (Config(tasks=TASKS), routelab.RoutingOnlyConfig(), "router objective"),
        (Config(tasks=TASKS), Config(task_router=0, load_balance=1), "router objective"),
        (routelab.AARConfig(layers=[1]), routelab.RoutingOnlyConfig(), "layers.0.router"),
        (routelab.AARConfig(layers=[1]), Config(tasks=TASKS, routing="sequence"), "layers.0.router"),
        (Config(tasks=TASKS, routing="sequence"), routelab.AARConfig(layers=[1]), "layers.0.router"),
    ],
)
def test_other_pairs_stay_refused(make_host: MakeHost, first: object, second: object, part: str) -> None:
    model = routelab.attach(make_host("olmoe"), first)
    with pytest.raises(ConflictError, match=part):
        routelab.attach(model, second)
