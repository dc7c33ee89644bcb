"""The benchmark measures what it says, on sizes that take no time."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import OlmoeConfig

from routelab.bench.olmoe_layer import bench_layer
from routelab.bench.timing import interleaved, peak_bytes, ratios, summary
from routelab.bench.window import bench_window, eager_attention, window_tables
from routelab.errors import ConfigError
from routelab.ops.window import window_attention


def test_result_is_plain_and_complete():
    told: list[str] = []
    result = bench_window(
        (32, 48), heads=2, head_dim=8, window=5, head_dims=(16,), head_dims_length=32, passes=2, layer_length=None,
        progress=told.append,
    )  # fmt: skip
    assert json.loads(json.dumps(result)) == result
    assert [case["length"] for case in result["lengths"]] == [32, 48]
    for case in result["lengths"]:
        for step in ("forward", "forward+backward"):
            assert set(case[step]["seconds"]) == {"sdpa", "window", "eager"}
            assert set(case[step]["ratio"]) == {"window", "eager"}
            assert all(count > 0 for count in case[step]["peak_bytes"].values())
    assert result["layer"] is None
    assert len(told) == 3
    (table,) = window_tables(result)
    assert len(table.rows) == 6
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_layer_on_against_off():
    config = OlmoeConfig(
        vocab_size=16, num_hidden_layers=1, hidden_size=32, intermediate_size=16, num_attention_heads=4,
        num_key_value_heads=4, num_experts=4, num_experts_per_tok=2, eos_token_id=1,
    )  # fmt: skip
    layer = bench_layer(24, window=5, passes=2, config=config)
    assert layer["parameters"] == 4 * 32 * 32 + 2 * 32 + 4 * 3 * 32 * 16 + 4 * 32 + 2 * 32
    assert layer["forward"]["ratio"]["on"]["median"] > 0
    assert set(layer["forward+backward"]["seconds"]) == {"off", "on"}


def test_eager_contender_computes_the_same():
    query, key, value = (torch.randn(1, 2, 30, 8) for _ in range(3))
    for eager, ours in zip(eager_attention(query, key, value, 7), window_attention(query, key, value, 7), strict=True):
        torch.testing.assert_close(eager, ours, atol=1e-6, rtol=1e-5)


def test_passes_are_interleaved_and_start_in_turn():
    calls: list[str] = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3, "cpu")
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert [len(values) for values in seconds.values()] == [3, 3]


def test_ratios_are_taken_within_a_pass():
    """A slow phase of the machine (second pass) does not touch them."""
    assert ratios({"base": [1.0, 10.0, 2.0], "own": [2.0, 20.0, 4.0]}, "base") == {
        "own": {"median": 2.0, "q25": 2.0, "q75": 2.0}
    }
    assert summary([3.0]) == {"median": 3.0, "q25": 3.0, "q75": 3.0}


def test_peak_counts_what_lives_at_once():
    kilobyte = 256  # floats

    def run() -> torch.Tensor:
        torch.empty(64 * kilobyte)  # freed at once
        first = torch.empty(32 * kilobyte)
        second = torch.empty(32 * kilobyte)
        del first
        return second

    assert peak_bytes(run, "cpu") == 64 * 1024


def test_bad_settings_are_named():
    with pytest.raises(ConfigError, match="floating torch dtype"):
        bench_window(dtype="int32")
    with pytest.raises(ConfigError, match="at least 1"):
        bench_window(passes=0)
