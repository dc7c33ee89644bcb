"""The benchmark measures what it says, on sizes that take no time."""

from __future__ import annotations

import json

import pytest
import torch

from routelab.bench.pathlock import CONTENDERS, STEPS, MaskedMLP, bench_pathlock, pathlock_tables
from routelab.errors import ConfigError
from routelab.methods.pathlock.layer import PathLockedMLP, plan_rows


def test_result_is_plain_and_complete() -> None:
    result = bench_pathlock(
        batch=2, length=8, hidden_size=64, intermediate_size=32, layers=1, decode_tokens=2, passes=2
    )
    assert json.loads(json.dumps(result)) == result
    for step in STEPS:
        assert set(result["steps"][step]["seconds"]) == set(CONTENDERS)
        assert set(result["steps"][step]["ratio"]) == set(CONTENDERS) - {"dense"}
    count = result["parameters"]
    assert count["single"] == count["mixed"] == count["masked"] == count["dense"] + 3 * 64 * 32
    state = result["steps"]["optimizer"]["peak_bytes"]
    assert state["dense"] < state["mixed"] == state["masked"]
    assert state["single"] == state["dense"]  # an idle expert has no state
    (table,) = pathlock_tables(result)
    assert len(table.rows) == len(STEPS) * len(CONTENDERS)
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_masked_peer_computes_the_same() -> None:
    masked = MaskedMLP(torch.nn.Linear(4, 4))
    torch.nn.init.normal_(masked.think.weight)
    masked.index = torch.tensor([1, 0, 1])
    locked = PathLockedMLP(masked.no_think, masked.think)
    locked.plan = plan_rows([1, 0, 1], 5, torch.device("cpu"))
    hidden = torch.randn(3, 5, 4)
    torch.testing.assert_close(masked(hidden), locked(hidden))


@pytest.mark.parametrize("settings", [{"dtype": "int64"}, {"dtype": "floating"}, {"passes": 0}, {"hidden_size": 100}])
def test_bad_settings(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        bench_pathlock(**settings)  # type: ignore[arg-type]
