"""Routing maps against counts made token by token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import log
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel

from routelab.errors import EvaluationError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.study.routing_maps import study_routing
from routelab.study.token_classes import CLASSES, vocabulary_classes
from tests.study.texts import random_texts

MakeHost = Callable[..., PreTrainedModel]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TOKENIZER)


def texts(size: int) -> list[Any]:
    return [*random_texts(3, task="a", vocabulary=size), *random_texts(2, length=9, task="b", vocabulary=size)]


def test_counts_are_those_of_the_router(make_host: MakeHost, family: str, tokenizer: Any) -> None:
    size = len(tokenizer)
    model, control = make_host(family, vocab_size=size), make_host(family, vocab_size=size)
    with torch.no_grad():
        control.base_model.layers[2].mlp.gate.weight += 0.5
        control.base_model.layers[2].mlp.gate.weight.normal_(generator=torch.Generator().manual_seed(3))
    found = study_routing(model, tokenizer, texts(size), ["a", "b"], control=control)
    kinds = vocabulary_classes(tokenizer, size)
    load = [Counter() for _ in range(4)]
    both = [Counter() for _ in range(4)]
    tasks = [Counter() for _ in range(4)]
    classes = [Counter() for _ in range(4)]
    entropy, same, tokens = [0.0] * 4, [0.0] * 4, 0
    for text in texts(size):
        ids = torch.tensor([text.ids])
        with torch.no_grad():
            ours = model(input_ids=ids, output_router_logits=True).router_logits
            theirs = control(input_ids=ids, output_router_logits=True).router_logits
        tokens += len(text.ids)
        for layer in range(4):
            for i, token in enumerate(text.ids):
                chosen = sorted(ours[layer][i].topk(3).indices.tolist())
                p = ours[layer][i].double().softmax(-1)
                entropy[layer] += float(-(p * p.log()).sum())
                same[layer] += len(set(chosen) & set(theirs[layer][i].topk(3).indices.tolist())) / 3
                for expert in chosen:
                    load[layer][expert] += 1
                    tasks[layer][text.task, expert] += 1
                    classes[layer][CLASSES[kinds[token]], expert] += 1
                    both[layer].update((expert, other) for other in chosen)
    assert (found["texts"], found["tokens"]) == (5, tokens) == (5, 78)
    for layer in found["layers"]:
        at = layer["layer"]
        assert layer["load"] == pytest.approx([load[at][e] / (3 * tokens) for e in range(8)])
        assert layer["router_entropy"] == pytest.approx(entropy[at] / tokens / log(8), rel=1e-5)
        assert layer["load_entropy"] == pytest.approx(-sum(x * log(x) for x in layer["load"] if x) / log(8))
        assert layer["largest"] == pytest.approx(8 * max(layer["load"]))
        assert layer["unused"] == sum(load[at][e] == 0 for e in range(8))
        for a in range(8):
            for b in range(8):
                assert layer["together"][a][b] == pytest.approx(both[at][a, b] / tokens)
        for name, row in zip("ab", layer["tasks"]["share"], strict=True):
            total = sum(count for (task, _), count in tasks[at].items() if task == name)
            assert row == pytest.approx([tasks[at][name, e] / total for e in range(8)])
        assert set(layer["classes"]["names"]) == {name for name, _ in classes[at]}
        for name, row in zip(layer["classes"]["names"], layer["classes"]["share"], strict=True):
            total = sum(count for (kind, _), count in classes[at].items() if kind == name)
            assert row == pytest.approx([classes[at][name, e] / total for e in range(8)])
        for pair in layer["pairs"]:
            a, b = pair["experts"]
            assert pair["lift"] == pytest.approx(both[at][a, b] * tokens / (load[at][a] * load[at][b]))
        lifts = [pair["lift"] for pair in layer["pairs"]]
        assert lifts == sorted(lifts, reverse=True)
    assert found["agreement"] == pytest.approx({str(at): same[at] / tokens for at in range(4)})
    assert found["agreement"]["0"] == found["agreement"]["1"] == 1.0 > found["agreement"]["2"]
    assert found["control"]["layers"][0]["load"] == found["layers"][0]["load"]


def test_without_a_control(make_host: MakeHost, tokenizer: Any) -> None:
    model = make_host("mixtral", vocab_size=len(tokenizer))
    found = study_routing(model, tokenizer, random_texts(1), ["t"])
    assert (found["agreement"], found["control"]) == (None, None)


def test_what_does_not_belong_together_is_refused(make_host: MakeHost, tokenizer: Any) -> None:
    model = make_host("olmoe", vocab_size=len(tokenizer))
    with pytest.raises(EvaluationError, match="equal hosts"):
        study_routing(model, tokenizer, [], ["t"], control=make_host("mixtral"))
    with pytest.raises(EvaluationError, match="no text"):
        study_routing(model, tokenizer, [], ["t"])
    with pytest.raises(EvaluationError, match="no token of task 1"):
        study_routing(model, tokenizer, random_texts(1), ["t", "u"])
