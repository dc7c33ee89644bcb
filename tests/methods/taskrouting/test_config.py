"""The configuration refuses what contradicts itself and survives JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from routelab.errors import ConfigError
from routelab.methods.base_config import config_from
from routelab.methods.taskrouting.config import TaskRoutingConfig

NAMES = ("arithmetic", "facts")


@pytest.mark.parametrize(
    "values",
    [
        {"tasks": NAMES},
        {"tasks": NAMES, "experts": [[0, 3], 2], "layers": [3, 1]},
        {"tasks": NAMES, "experts_per_task": 4, "load_balance": 0.01, "routing": "sequence"},
        {"task_router": 0, "load_balance": 0.5},
        {"task_router": 0.0, "routing": "sequence"},
    ],
)
def test_round_trip_through_json(values: dict[str, object]) -> None:
    config = TaskRoutingConfig(**values)
    assert config_from(TaskRoutingConfig, json.loads(json.dumps(asdict(config))), "a file") == config


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "task_router needs tasks"),
        ({"task_router": 0}, "that is routing_only"),
        ({"tasks": NAMES, "task_router": -1}, "task_router must be a finite number of at least 0"),
        ({"tasks": NAMES, "load_balance": float("nan")}, "load_balance must be a finite number"),
        ({"tasks": "facts"}, "tasks must be a list of names"),
        ({"tasks": ["a", ""]}, "tasks must be a list of names"),
        ({"tasks": ["a", "b", "a"]}, "tasks names a twice"),
        ({"tasks": NAMES, "routing": "document"}, "routing 'document' is none of token, sequence"),
        ({"tasks": NAMES, "experts_per_task": 0}, "experts_per_task must be an integer of at least 1"),
        ({"tasks": NAMES, "experts": [0]}, "2 tasks and experts for 1: facts would have none"),
        ({"tasks": NAMES, "experts": [0, 1, 2]}, "experts has 3 entries for 2 tasks"),
        ({"tasks": NAMES, "experts": [0, []]}, r"experts\.1 must be an expert's number or a list"),
        ({"tasks": NAMES, "experts": [[1, 1], 0]}, r"experts\.0 must be"),
        ({"tasks": NAMES, "experts": [0, 1], "experts_per_task": 2}, "leave experts_per_task out"),
        ({"tasks": NAMES, "layers": []}, "layers must be a list of layer indices"),
        ({"tasks": NAMES, "layers": "all"}, "layers must be a list of layer indices"),
    ],
)
def test_bad_values_are_named(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TaskRoutingConfig(**values)
