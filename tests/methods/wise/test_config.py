"""WISEConfig: what it accepts, what it refuses and how it says so."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from routelab import WISEConfig
from routelab.errors import ConfigError
from routelab.methods.base_config import config_from
from routelab.methods.wise.config import CONDITIONS


def test_defaults_are_the_papers() -> None:
    config = WISEConfig()
    assert (config.discovery_steps, config.window, config.block_size, config.mass) == (12, 4, 32, 0.95)
    assert config.window_start == 9
    assert WISEConfig(discovery_steps=2).window_start == 1


@pytest.mark.parametrize("condition", CONDITIONS)
def test_it_survives_json(condition: str) -> None:
    config = WISEConfig(condition=condition, mass=1, causal=True)
    assert config_from(WISEConfig, json.loads(json.dumps(asdict(config))), "test") == config


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"condition": "size_match"}, "did you mean 'size_matched'"),
        ({"discovery": "margins"}, "did you mean 'margin'"),
        ({"discovery_steps": 0}, "discovery_steps must be an integer of at least 1, not 0"),
        ({"window": True}, "window must be an integer"),
        ({"block_size": 48}, "block_size must be one of 8, 16, 32, 64, 128, 256, not 48"),
        ({"mass": 0}, r"mass must lie in \(0, 1\], not 0"),
        ({"mass": 1.01}, "mass must lie"),
        ({"mass": float("nan")}, "mass must lie"),
        ({"causal": 1}, "causal must be true or false"),
        ({"seed": -1}, "seed must be"),
        ({"discovery": "adaptive", "condition": "freeze"}, "condition 'freeze' is defined at a fixed step"),
    ],
)
def test_bad_values_are_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WISEConfig(**values)
