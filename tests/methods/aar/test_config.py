"""AARConfig validates, round-trips through JSON, and layer selections mean what they say."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from routelab import AARConfig
from routelab.errors import ConfigError, LayerError
from routelab.methods.aar.config import select_layers
from routelab.methods.base_config import config_from


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"window": 0}, "window must be an integer of at least 1"),
        ({"window": 4.0}, "window must be an integer"),
        ({"window": True}, "window must be an integer"),
        ({"layers": "9-"}, "is none of"),
        ({"layers": [1, "2"]}, "list of layer indices"),
        ({"views": ["time", "wavelet"]}, "views must name"),
        ({"views": []}, "views must name"),
        ({"views": ["time", "time"]}, "twice"),
        ({"window_source": "layer:x"}, "is none of"),
        ({"window_source": "attn"}, "is none of"),
        ({"gate_scale_init": "0"}, "number or null"),
        ({"gate_scale_init": float("nan")}, "finite number or null"),
        ({"init_std": float("inf")}, "finite number of at least 0"),
        ({"include_self": 1}, "true or false"),
        ({"init_std": -1}, "at least 0"),
        ({"seed": -1}, "at least 0"),
    ],
)
def test_bad_values(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        AARConfig(**values)


def test_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"arms\.aar: unknown key 'windows'; did you mean 'window'\?"):
        config_from(AARConfig, {"windows": 4}, "arms.aar")


@pytest.mark.parametrize("config", [AARConfig(), AARConfig(layers=[3, 1], views=("time",), window_source="layer:1")])
def test_round_trip(config: AARConfig) -> None:
    assert config_from(AARConfig, json.loads(json.dumps(dataclasses.asdict(config))), "here") == config


@pytest.mark.parametrize(
    ("layers", "model_type", "depth", "expected"),
    [
        (None, "olmoe", 16, range(9, 16)),
        (None, "qwen2_moe", 24, range(14, 18)),
        (None, "olmoe", 8, [5, 6, 7]),
        (None, "mixtral", 30, range(17, 29)),
        ("9-15", "olmoe", 16, range(9, 16)),
        ("55%-95%", "olmoe", 16, range(9, 16)),
        ("all", "olmoe", 4, range(4)),
        ([3, 1, 3], "olmoe", 4, [1, 3]),
    ],
)
def test_selection(layers: Any, model_type: str, depth: int, expected: Any) -> None:
    assert select_layers(layers, model_type=model_type, depth=depth, allowed=range(depth)) == tuple(expected)


def test_paper_layers_of_qwen36_are_the_full_attention_ones() -> None:
    allowed = range(3, 40, 4)
    assert select_layers(None, model_type="qwen3_5_moe_text", depth=40, allowed=allowed) == (23, 27, 31)
    assert select_layers("55%-95%", model_type="qwen3_5_moe_text", depth=40, allowed=allowed) == (23, 27, 31, 35)
    with pytest.raises(LayerError, match="layers 22, 24 cannot be used"):
        select_layers("22-24", model_type="qwen3_5_moe_text", depth=40, allowed=allowed)
