"""The working-set benchmark measures what it says, on sizes that take no time."""

from __future__ import annotations

import json

import pytest
import torch

from routelab.bench.working_set import bench_working_set, random_supports, working_set_tables
from routelab.errors import ConfigError
from routelab.ops import native


def test_result_is_plain_and_complete():
    told: list[str] = []
    result = bench_working_set((64,), block_sizes=(16, 32), heads=2, head_dim=8, passes=2, progress=told.append)
    assert json.loads(json.dumps(result)) == result
    assert told == ["64 tokens, blocks of 16", "64 tokens, blocks of 32"]
    for case in result["cases"]:
        assert case["backend"] == ("gather" if native.compiler() is None else "native")
        assert case["predicted"] == pytest.approx(12 / 32 + 20 / 32 * case["density"])
        assert set(case["seconds"]) == {"sdpa", "outside", "inside", "prepare", "reuse", "all_blocks"}
        assert case["share"]["median"] == pytest.approx(case["speedup"]["median"] * case["density"])
    for table in working_set_tables(result):
        assert len(table.rows) == 2
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_sums_of_steps(monkeypatch):
    """Late reuse pays the set-up once, discovery the mass inside the window only."""
    seconds = {"sdpa": [4.0], "outside": [4.0], "inside": [6.0], "prepare": [10.0], "reuse": [2.0], "all_blocks": [5.0]}
    monkeypatch.setattr("routelab.bench.working_set.interleaved", lambda *_: seconds)
    (case,) = bench_working_set((64,), block_sizes=(16,), heads=2, head_dim=8, passes=1)["cases"]
    assert case["speedup"]["median"] == pytest.approx(20 * 4 / (10 + 20 * 2))
    assert case["trajectory"]["median"] == pytest.approx((8 * 4 + 4 * 6 + 10 + 20 * 2) / (32 * 4))
    assert case["inside"]["median"] == 1.5
    assert case["all_blocks"]["median"] == 1.25


def test_given_supports_are_used():
    asked: list[tuple[int, int]] = []

    def diagonal(length: int, size: int) -> torch.Tensor:
        asked.append((length, size))
        return torch.eye(length // size, dtype=torch.bool).expand(2, -1, -1)

    result = bench_working_set((64,), block_sizes=(16,), supports=diagonal, heads=2, head_dim=8, passes=1)
    assert asked == [(64, 16)]
    assert result["cases"][0]["density"] == pytest.approx(4 / 10)
    assert result["settings"]["supports"] == "given"


@pytest.mark.parametrize("density", [0.2, 0.37, 1.0])
def test_random_supports_have_their_density(density):
    kept = random_supports(8, density)(1024, 16)
    causal = torch.ones(64, 64, dtype=torch.bool).tril()
    assert kept.shape == (8, 64, 64)
    assert not (kept & ~causal).any()
    assert kept.diagonal(dim1=1, dim2=2).all()
    assert float(kept.sum() / (8 * causal.sum())) == pytest.approx(density, abs=0.02)


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match="floating torch dtype"):
        bench_working_set(dtype="int32")
    with pytest.raises(ConfigError, match="window <= discovery_steps < steps"):
        bench_working_set(steps=12)
    with pytest.raises(ConfigError, match="density must lie"):
        bench_working_set(density=0.0)
