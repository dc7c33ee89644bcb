from __future__ import annotations

from dataclasses import asdict

import pytest

from routelab.errors import ConfigError
from routelab.train import TrainConfig


def test_defaults_are_the_papers_where_it_gives_them() -> None:
    config = TrainConfig(steps=1)
    assert (config.learning_rate, config.warmup_ratio, config.max_length) == (1e-4, 0.03, 512)
    assert config.aux_loss_coef is None
    assert config.assistant_only


@pytest.mark.parametrize(
    "budget", [{}, {"steps": 3, "tokens": 5}, {"steps": 3, "epochs": 1}, {"steps": 1, "tokens": 1, "epochs": 1}]
)
def test_exactly_one_budget(budget: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="exactly one of steps, tokens and epochs"):
        TrainConfig(**budget)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("batch_size", 0),
        ("grad_accum", 0),
        ("max_length", 1),
        ("learning_rate", 0.0),
        ("learning_rate", float("inf")),
        ("warmup_ratio", 1.0),
        ("weight_decay", -1.0),
        ("aux_loss_coef", 0.0),
        ("overlong", "truncate"),
        ("dtype", "float8"),
        ("save_every", 0),
        ("learning_rte", 1e-3),
    ],
)
def test_wrong_values_are_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field):
        TrainConfig(**{"steps": 1, field: value})


def test_yaml_scientific_notation_is_read_as_a_number() -> None:
    assert TrainConfig(steps=1, learning_rate="1e-3").learning_rate == 1e-3  # YAML reads 1e-3 as text


def test_round_trip_and_frozen() -> None:
    config = TrainConfig(tokens=1000, packing=True, learning_rate=3e-4)
    assert TrainConfig(**asdict(config)) == config
    with pytest.raises(AttributeError):
        config.steps = 3  # type: ignore[misc]


def test_packing_with_auxiliary_loss_needs_rows_without_padding() -> None:
    with pytest.raises(ConfigError, match="batch_size 1"):
        TrainConfig(steps=1, packing=True, aux_loss_coef=0.01, batch_size=2)
    assert TrainConfig(steps=1, packing=True, aux_loss_coef=0.01, batch_size=1).packing
