"""A training recipe small enough to be swept."""

from __future__ import annotations

from pathlib import Path

import pytest

from routelab.recipe import Recipe, parse_recipe


@pytest.fixture(scope="session")
def recipe(host: Path) -> Recipe:
    values = {
        "name": "tiny",
        "host": {"name": str(host), "dtype": "float32"},
        "arms": {
            "aar": [{"method": "aar", "layers": "all", "window": 4}],
            "routing-only": [{"method": "routing_only"}],
        },
        "control": "routing-only",
        "seeds": [0],
        "data": [{"source": "mini-arithmetic", "limit": 6}],
        "train": {"steps": 2, "batch_size": 2, "max_length": 128, "learning_rate": 0.05},
        "evaluate": [{"task": "mini-facts", "limit": 12}],
    }
    found = parse_recipe(values, "tiny")
    assert isinstance(found, Recipe)
    return found
