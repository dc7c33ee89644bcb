"""The benchmark's two loops train the same model."""

from __future__ import annotations

import json

import pytest

from routelab.bench.table1 import _epoch, bench_table1, ours, plain, table1_tables
from routelab.data.knowledge import fictional
from routelab.errors import ConfigError
from routelab.train.one_layer import OneLayerTraining, gather


def test_both_loops_have_the_same_losses_and_the_result_is_plain() -> None:
    knowledge = fictional(3, templates=3, pairs=12)
    settings = OneLayerTraining(batch_size=8)
    result = bench_table1(knowledge, experts=3, neurons=16, hidden_size=32, settings=settings, passes=2)
    assert json.loads(json.dumps(result)) == result
    assert set(result["seconds"]) == {"ours", "plain", "padded"}
    assert set(result["ratio"]) == {"plain", "padded"}
    assert result["loss_difference"] < 1e-4
    (table,) = table1_tables(result)
    assert [row[0] for row in table.rows] == ["ours", "plain", "padded"]
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_losses_are_the_same_to_rounding_where_experts_get_no_tokens() -> None:
    epoch = _epoch(fictional(3, templates=3, pairs=12), [16] * 9, 32, OneLayerTraining(batch_size=1), seed=0)
    epoch = epoch._replace(model=epoch.model.double(), order=epoch.order[:20])
    outputs = epoch.model.model(gather(epoch.sequences, epoch.tasks, epoch.order[0])[0])
    assert len(outputs.router_logits[0].argmax(-1).unique()) < 9
    assert ours(epoch) == pytest.approx(plain(epoch), abs=1e-9)


def test_no_passes_are_refused() -> None:
    with pytest.raises(ConfigError, match="passes and experts"):
        bench_table1(fictional(3, templates=3, pairs=12), passes=0)
