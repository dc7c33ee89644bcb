"""One cell, small: what its file says, and when it is read instead of run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from routelab.errors import DataError, RecipeError
from routelab.table1.cell import knowledge_of, make_model, run_cell
from routelab.table1.spec import CellSpec

SMALL = CellSpec(
    3, 3, "task_router", source="fictional", pairs=12, hidden_size=32, num_heads=2, neurons=16, epochs=4, batch_size=8
)


def test_result_is_plain_and_consistent(tmp_path: Path) -> None:
    result = run_cell(SMALL, None, tmp_path)
    assert json.loads((tmp_path / f"{SMALL.name}.json").read_text(encoding="utf-8")) == result
    assert [path.name for path in tmp_path.iterdir()] == [f"{SMALL.name}.json"], "nothing temporary stays"
    assert 0 <= result["accuracy"] <= 1
    assert result["sentences"]["test"] == round(0.2 * 3 * 3 * 12)
    assert len(result["alignment"]) == 3
    assert all(len(row) == 3 for row in result["alignment"])
    assert sum(result["load"]) == pytest.approx(1)
    assert result["tokens"] == sum(row["tokens"] for row in result["history"])
    assert result["source"] == "fictional"
    assert result["note"] is None


def test_a_finished_cell_is_read_and_a_changed_one_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{SMALL.name}.json"
    first = run_cell(SMALL, None, tmp_path)
    path.write_text(json.dumps({**first, "accuracy": 0.123}), encoding="utf-8")
    assert run_cell(SMALL, None, tmp_path, resume=True)["accuracy"] == 0.123, "not run again"
    with pytest.raises(RecipeError, match="finished cell"):
        run_cell(SMALL, None, tmp_path)
    with pytest.raises(RecipeError, match="was run with epochs 4, this cell has 5"):
        run_cell(replace(SMALL, epochs=5), None, tmp_path, resume=True)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(RecipeError, match="damaged"):
        run_cell(SMALL, None, tmp_path, resume=True)


def test_losses_share_data_order_and_first_weights(tmp_path: Path) -> None:
    plain = replace(SMALL, loss="ce", coefficient=0.0)
    models = [make_model(spec, 40, 12) for spec in (SMALL, plain)]
    assert all((a == b).all() for a, b in zip(*(model.parameters() for model in models), strict=True))
    hashes = {run_cell(replace(spec, epochs=1), None, tmp_path)["data_sha256"] for spec in (SMALL, plain)}
    assert len(hashes) == 1


def test_a_hard_gate_is_noted_under_cross_entropy_alone(tmp_path: Path) -> None:
    result = run_cell(replace(SMALL, loss="ce", gate="hard", coefficient=0.0, epochs=1), None, tmp_path)
    assert result["router_gradient"] == 0
    assert "no gradient from cross-entropy (gate 'hard')" in result["note"]


def test_sequence_routing_runs(tmp_path: Path) -> None:
    result = run_cell(replace(SMALL, routing="sequence", epochs=1), None, tmp_path)
    assert result["spec"]["routing"] == "sequence"
    assert 0 <= result["steady_sentences"] <= 1


def test_relations_need_their_data() -> None:
    with pytest.raises(DataError, match="needs ROUTELAB_DATA"):
        knowledge_of(replace(SMALL, source="relations"), None)


def test_real_relations_are_drawn_nested(data_root: Path) -> None:
    (few, source), (many, _) = (knowledge_of(CellSpec(tasks, 3, pairs=200), data_root) for tasks in (10, 40))
    assert source == "bear+pararel"
    assert few.tasks == many.tasks[:10]
    assert all(len(task.templates) == 3 and len(task.pairs) == 200 for task in many.tasks)
