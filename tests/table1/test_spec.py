"""Cells and grids as plain values."""

from __future__ import annotations

import json

import pytest

from routelab.errors import ConfigError
from routelab.table1.spec import CellSpec, grid


def test_the_paper_s_grid_has_one_cell_for_one_expert() -> None:
    cells = grid()
    assert len(cells) == 4 * (1 + 4 * 3) * 3 == len({cell.name for cell in cells})
    assert {cell.loss for cell in cells if cell.experts == 1} == {"ce"}
    seeds = [cell.seed for cell in cells]
    assert seeds == sorted(seeds), "a grid cut off early is a whole table of fewer seeds"
    assert cells[0].tasks == 40
    assert cells[51].tasks == 10


def test_values_and_hash() -> None:
    cell = CellSpec(20, 5, "task_router", 1)
    assert CellSpec(**json.loads(json.dumps(cell.values()))) == cell
    assert cell.name == "tasks-20-experts-5-task-router-seed-1"
    assert CellSpec(20, 5, "task_router", 1, coefficient=1.0).digest() == cell.digest(), "the default, said"
    assert CellSpec(20, 5, "task_router", 1, epochs=7).digest() != cell.digest()
    assert CellSpec(20, 5, routing="sequence").name == "tasks-20-experts-5-ce-sequence-seed-0"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experts": 1, "loss": "task_router"}, "with one expert"),
        ({"loss": "taskrouter"}, "did you mean 'task_router'"),
        ({"source": "fiction"}, "did you mean 'fictional'"),
        ({"tasks": 0}, "tasks must be at least 1"),
    ],
)
def test_impossible_cells_are_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CellSpec(**{"tasks": 2, "experts": 3, **changes})  # type: ignore[arg-type]
