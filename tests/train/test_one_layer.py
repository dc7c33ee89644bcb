"""The training of the one-layer host: its batches, its losses by hand, its schedule, and that it learns."""

from __future__ import annotations

import copy
import math
import random

import pytest
import torch
from torch.nn import functional as F

from routelab.errors import ConfigError, TrainingError
from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM
from routelab.train.one_layer import OneLayerTraining, batches, losses, make_optimizer, router_gradient, train_one_layer

#: Two tasks over four keys: "0 key relation value 1".
SEQUENCES = [[0, 2 + key, 6 + task, 8 + (key + task) % 4, 1] for key in range(4) for task in range(2)]
TASKS = [task for _ in range(4) for task in range(2)]


def make(**changes: object) -> OneLayerForCausalLM:
    torch.manual_seed(0)
    values = {"vocab_size": 12, "hidden_size": 16, "expert_sizes": [8, 8, 8], "gate": "probability", **changes}
    return OneLayerForCausalLM(OneLayerConfig(initializer_range=0.3, **values))


def test_batches_hold_every_sentence_once_and_one_length_each() -> None:
    rng = random.Random(3)
    sequences = [[0] * rng.randint(2, 6) for _ in range(101)]
    found = batches(sequences, 8, random.Random(0))
    assert sorted(index for batch in found for index in batch) == list(range(101))
    assert all(len({len(sequences[index]) for index in batch}) == 1 for batch in found)
    assert max(map(len, found)) <= 8
    for length in range(2, 7):
        sizes = [len(batch) for batch in found if len(sequences[batch[0]]) == length]
        assert max(sizes) - min(sizes) <= 1, "no batch is a small remainder"
    assert found == batches(sequences, 8, random.Random(0)) != batches(sequences, 8, random.Random(1))


@pytest.mark.parametrize("loss", ["ce", "load_balance", "task_router"])
def test_losses_by_hand(loss: str) -> None:
    model = make().double()
    ids, tasks = torch.tensor(SEQUENCES[:3]), torch.tensor([0, 1, 5])
    output = model(ids, output_router_logits=True)
    entropy, auxiliary = losses(model, ids, tasks, loss)
    torch.testing.assert_close(entropy, F.cross_entropy(output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    # The words of a sentence count: neither its begin token, nor its end token, which is never read.
    router = output.router_logits[0].view(3, 5, 3)[:, 1:4].flatten(0, 1)
    probabilities = router.exp() / router.exp().sum(-1, keepdim=True)
    wanted = torch.zeros((), dtype=torch.float64)
    if loss == "load_balance":
        load = torch.stack([(router.argmax(-1) == expert).double().mean() for expert in range(3)])
        wanted = 3 * (probabilities.mean(0) * load).sum()
    if loss == "task_router":
        experts = [0, 0, 0, 1, 1, 1, 2, 2, 2]  # tasks 0, 1 and 5, modulo three experts
        wanted = -sum(probabilities[row, expert].log() for row, expert in enumerate(experts)) / 9
    torch.testing.assert_close(auxiliary, wanted)


def test_rate_rises_and_falls() -> None:
    settings = OneLayerTraining(warmup=0.25)
    assert [settings.rate(at) for at in (0.125, 0.25, 0.5, 1.0)] == [0.5 * 0.875, 0.75, 0.5, 0.0]
    assert OneLayerTraining(warmup=0).rate(0.5) == 0.5


def test_token_embeddings_have_their_own_rate() -> None:
    model = make()
    embedding, others = make_optimizer(model, OneLayerTraining(learning_rate=0.1, embedding_scale=5)).param_groups
    assert embedding["params"][0] is model.model.embed_tokens.weight
    assert (embedding["peak"], others["peak"]) == (0.5, 0.1)
    assert len(others["params"]) + 1 == len(list(model.parameters()))


def test_it_learns_the_facts() -> None:
    model = make()
    settings = OneLayerTraining(epochs=60, batch_size=4, learning_rate=0.01, embedding_scale=3)
    rows = train_one_layer(model, SEQUENCES, TASKS, settings)
    assert [row["epoch"] for row in rows] == list(range(1, 61))
    assert rows[0]["tokens"] == 4 * len(SEQUENCES)
    # Which key and which relation is a coin toss: (ln 4 + ln 2) / 4 a token. The value and the end are certain.
    assert rows[-1]["cross_entropy"] < (math.log(4) + math.log(2)) / 4 + 0.02
    assert model(torch.tensor([[0, 3, 7]])).logits[0, -1].argmax() == 8 + (1 + 1) % 4


def test_a_seed_decides_the_order() -> None:
    trained = []
    for seed in (0, 0, 1):
        model = make()
        train_one_layer(model, SEQUENCES, TASKS, OneLayerTraining(epochs=2, batch_size=4, seed=seed))
        trained.append(model.lm_head.weight)
    assert torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], trained[2])


def test_the_task_router_loss_sends_tasks_to_their_experts() -> None:
    model = make()
    settings = OneLayerTraining("task_router", 1.0, epochs=60, batch_size=8, learning_rate=0.01, embedding_scale=1)
    assert train_one_layer(model, SEQUENCES, TASKS, settings)[-1]["auxiliary"] < 0.4
    ids = torch.tensor(SEQUENCES)
    chosen = model(ids, output_router_logits=True).router_logits[0].argmax(-1).view_as(ids)[:, 2:4]
    assert chosen.tolist() == [[task, task] for task in TASKS], "once the relation is read, the expert is the task's"


def test_cross_entropy_reaches_the_router_only_through_the_probability() -> None:
    ids, tasks = torch.tensor(SEQUENCES), torch.tensor(TASKS)
    model = make()
    assert router_gradient(model, ids, tasks) > 0
    hard = make(gate="hard")
    assert router_gradient(hard, ids, tasks) == 0
    before = copy.deepcopy(hard.model.router.weight)
    rows = train_one_layer(hard, SEQUENCES, TASKS, OneLayerTraining(epochs=2))
    assert [row["router_gradient"] for row in rows] == [0, 0]
    assert torch.equal(hard.model.router.weight, before)
    assert router_gradient(make(expert_sizes=[8]), ids, tasks) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss": "task-router"}, "did you mean 'task_router'"),
        ({"epochs": 0}, "epochs and batch_size"),
        ({"warmup": 1.0}, r"warmup in \[0, 1\)"),
        ({"coefficient": -1.0}, "coefficient not negative"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        OneLayerTraining(**changes)  # type: ignore[arg-type]


def test_training_that_cannot_go_on_says_so() -> None:
    with pytest.raises(TrainingError, match="a task for each"):
        train_one_layer(make(), SEQUENCES, TASKS[1:], OneLayerTraining())
    model = make()
    with torch.no_grad():
        model.lm_head.weight.fill_(math.nan)
    with pytest.raises(TrainingError, match="no longer finite in epoch 1"):
        train_one_layer(model, SEQUENCES, TASKS, OneLayerTraining())
