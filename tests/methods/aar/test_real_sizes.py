"""The paper's hosts at their real sizes, on the meta device: what matches, and exact parameter counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import routelab

HOSTS = Path(routelab.__file__).parent / "recipes" / "paper" / "hosts"


def meta_host(name: str) -> PreTrainedModel:
    values = json.loads((HOSTS / f"{name}.json").read_text())
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "experts", "depth", "total"),
    [
        ("olmoe-1b-7b-0125", range(9, 16), 2048, 64, 16, 6_919_161_856),
        ("qwen1.5-moe-a2.7b", range(14, 18), 2048, 60, 24, 14_315_784_192),
        ("qwen3.6-35b-a3b", (23, 27, 31), 2048, 256, 40, None),
    ],
)
@pytest.mark.parametrize("scale", [None, 0.0])
def test_counts(
    name: str, layers: range, hidden: int, experts: int, depth: int, total: int | None, scale: float | None
) -> None:
    model = meta_host(name)
    if total is not None:
        assert model.num_parameters() == total
    routelab.attach(model, routelab.AARConfig(window=40, gate_scale_init=scale))
    summary = routelab.attached(model)[0].summary()
    new = len(layers) * (experts * ((40 + 21) + (hidden + 40) + (hidden + 21)) + (scale is not None))
    assert summary.layers == tuple(layers)
    assert summary.new_parameters == new
    assert summary.trainable_parameters == new + depth * experts * hidden
    routelab.detach(model)
