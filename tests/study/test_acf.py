"""Autocorrelation against the sums as they are written, and of windows that eager attention gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import routelab
from routelab.errors import EvaluationError, LayerError
from routelab.study.acf import autocorrelation, first_below, window_acf
from tests.study.texts import random_texts

MakeHost = Callable[..., PreTrainedModel]


def slow(window: np.ndarray, centred: bool) -> list[float]:
    signal = window - window.mean() if centred else window
    size = len(signal)
    return [
        sum(signal[t] * signal[t + lag] for t in range(size - lag)) / sum(value**2 for value in signal)
        for lag in range(size)
    ]


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("size", [2, 7, 20])
def test_autocorrelation_is_the_sum(size: int, centred: bool) -> None:
    windows = torch.rand(5, size, generator=torch.Generator().manual_seed(size))
    found = autocorrelation(windows, centred=centred)
    for row, window in zip(found, windows.double().numpy(), strict=True):
        assert row.tolist() == pytest.approx(slow(window, centred), abs=1e-12)
    if centred:
        assert found[:, 1:].sum(-1).tolist() == pytest.approx([-0.5] * 5)


def test_a_wave_correlates_with_itself_one_period_later() -> None:
    wave = torch.sin(torch.arange(64) * 2 * torch.pi / 8)[None]
    found = autocorrelation(wave)[0]
    assert found[4] < -0.8 < 0.8 < found[8]
    assert first_below(found.tolist()) == 2
    assert first_below([1.0, 0.5]) is None


def test_curves_are_those_of_eager_attention(make_host: MakeHost, family: str) -> None:
    model = make_host(family)
    texts = list(random_texts(2, length=24))
    found = window_acf(model, texts, windows=[8, 5])
    model.set_attn_implementation("eager")
    sums: dict[tuple[int, int], list[list[float]]] = {}
    seen_windows: dict[tuple[int, int], list[np.ndarray]] = {}
    layers = [1, 3] if family == "qwen3_5_moe_text" else [0, 1, 2, 3]
    for text in texts:
        with torch.no_grad():
            output = model(input_ids=torch.tensor([text.ids]), output_attentions=True)
        seen = [each for each in output.attentions if each is not None]
        for layer, weights in zip(layers, seen, strict=True):
            mean = weights[0].double().mean(0).numpy()
            for size in (5, 8):
                windows = [mean[i, i - size + 1 : i + 1] for i in range(size - 1, 24)]
                rows = [slow(each, True) for each in windows]
                sums.setdefault((layer, size), []).extend(rows)
                seen_windows.setdefault((layer, size), []).extend(windows)
    assert [(curve["layer"], curve["window"]) for curve in found["curves"]] == sorted(sums)
    for curve in found["curves"]:
        rows = np.array(sums[curve["layer"], curve["window"]])
        assert curve["tokens"] == len(rows)
        assert curve["acf"] == pytest.approx(rows.mean(0).tolist(), abs=1e-5)
        assert curve["lag"] == first_below(curve["acf"])
        mean = np.mean(seen_windows[curve["layer"], curve["window"]], 0)
        assert curve["weights"] == pytest.approx(mean.tolist(), abs=1e-6), "the token itself is last"
    assert (found["texts"], found["tokens"]) == (2, 48)


def test_attention_aware_routing_is_looked_at_as_it_runs(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    routelab.attach(model, routelab.AARConfig(layers=[0], window=4, init_std=1.0))
    host = make_host("olmoe")
    ours, theirs = (window_acf(each, random_texts(1), windows=[6]) for each in (model, host))
    assert ours["curves"][0] == theirs["curves"][0]
    assert ours["curves"][1]["acf"] != theirs["curves"][1]["acf"]
    assert model.config._attn_implementation == "routelab_window"


def test_what_cannot_be_looked_at_is_named(make_host: MakeHost) -> None:
    model = make_host("olmoe")
    with pytest.raises(EvaluationError, match="no full window of 64 weights in texts of at most 20 tokens"):
        window_acf(model, random_texts(2), windows=[8, 64])
    with pytest.raises(EvaluationError, match="at least 2 weights"):
        window_acf(model, random_texts(2), windows=[1])
    with pytest.raises(EvaluationError, match="no text"):
        window_acf(model, [], windows=[8])
    with pytest.raises(LayerError, match=r"layers \[7\] have no softmax attention"):
        window_acf(model, random_texts(1), windows=[8], layers=[1, 7])
