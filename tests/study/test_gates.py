"""Gates and moved experts against equation 5 written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import routelab
from routelab.errors import EvaluationError, HostError
from routelab.study.gates import BINS, study_gates
from routelab.study.texts import run_text
from tests.study.texts import random_texts

MakeHost = Callable[..., PreTrainedModel]


def slow(model: PreTrainedModel, layer: int, texts: Any, top_k: int) -> dict[str, Any]:
    """Every number of one layer from its router's inputs, token by token."""
    (method,) = routelab.attached(model)
    router = dict(method.routers())[layer]
    inputs: list[Any] = []
    handle = router.register_forward_pre_hook(lambda module, given: inputs.append(given))
    with torch.no_grad():
        for text in texts:
            run_text(model, text.ids)
    handle.remove()
    gates: dict[str, list[Any]] = {"time": [], "frequency": []}
    moved = {"all views": 0, "time": 0, "frequency": 0}
    replaced = dict.fromkeys(moved, 0)
    for hidden, standard, window in inputs:
        for h, s, w in zip(hidden.double(), standard.double(), window.double(), strict=True):
            features = {"time": w, "frequency": torch.log1p(torch.fft.rfft(w).abs())}
            alpha = {v: torch.sigmoid(router.G[v].double() @ torch.cat([h, x])) for v, x in features.items()}
            views = {v: alpha[v] * (router.A[v].double().T @ features[v]) for v in features}
            final = {"all views": (1 - sum(alpha.values()) / 2) * s + sum(views.values()) / 2}
            final |= {v: (1 - alpha[v] / 2) * s + views[v] / 2 for v in features}
            before = set(s.topk(top_k).indices.tolist())
            for name, logits in final.items():
                lost = before - set(logits.topk(top_k).indices.tolist())
                moved[name] += bool(lost)
                replaced[name] += len(lost)
            for v in features:
                gates[v].append(alpha[v].detach().numpy())
    return {"gates": {v: np.array(rows) for v, rows in gates.items()}, "moved": moved, "replaced": replaced}


def test_numbers_are_those_of_equation_5(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    routelab.attach(model, routelab.AARConfig(layers=[1, 3], window=6, init_std=0.5))
    found = study_gates(model, random_texts(3))
    assert [layer["layer"] for layer in found["layers"]] == [1, 3]
    for layer in found["layers"]:
        wanted = slow(model, layer["layer"], random_texts(3), 3)
        assert layer["tokens"] == 60
        for view in layer["views"]:
            values = wanted["gates"][view["view"]]
            assert view["experts"] == pytest.approx(values.mean(0).tolist(), abs=1e-5)
            assert view["sd"] == pytest.approx(values.std(0).tolist(), abs=1e-5)
            assert view["mean"] == pytest.approx(values.mean(), abs=1e-5)
            histogram = np.histogram(values, bins=BINS, range=(0, 1))[0] / values.size
            assert view["histogram"] == pytest.approx(histogram.tolist(), abs=3 / values.size)
            assert view["outside"] == 0
        for name in ("all views", "time", "frequency"):
            assert layer["moved"][name] == pytest.approx(wanted["moved"][name] / 60)
            assert layer["replaced"][name] == pytest.approx(wanted["replaced"][name] / 180)
    assert any(layer["moved"]["all views"] > 0 for layer in found["layers"])


def test_a_no_op_start_moves_nothing(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    routelab.attach(model, routelab.AARConfig(layers=[2], window=6, gate_scale_init=0.0, views=("time",)))
    (layer,) = study_gates(model, random_texts(2))["layers"]
    assert layer["moved"] == {"all views": 0.0, "time": 0.0}
    assert layer["views"][0]["histogram"][0] == 1.0
    with torch.no_grad():
        routelab.attached(model)[0].state_dict()["layers.2.attention_router.gate_scale"].fill_(-1.0)
    (layer,) = study_gates(model, random_texts(2))["layers"]
    assert layer["views"][0]["outside"] == 1.0
    assert sum(layer["views"][0]["histogram"]) == 0


def test_what_has_no_gates_is_refused(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    with pytest.raises(HostError, match="gates are those of attention-aware routing"):
        study_gates(model, random_texts(1))
    routelab.attach(model, routelab.AARConfig(layers=[2], window=6))
    with pytest.raises(EvaluationError, match="no text"):
        study_gates(model, [])
