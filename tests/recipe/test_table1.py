"""Table recipes: their cells, how single ones are named, and what is refused."""

from __future__ import annotations

import pytest

from routelab.errors import RecipeError
from routelab.recipe import Table1Recipe, load_recipe, parse_recipe
from routelab.recipe.table1 import chosen_cells


@pytest.fixture
def recipe() -> Table1Recipe:
    loaded = load_recipe("mini/taskrouting-table1")
    assert isinstance(loaded, Table1Recipe)
    return loaded


def test_one_expert_has_one_loss_and_seeds_come_one_after_the_other(recipe: Table1Recipe) -> None:
    cells = recipe.cells
    assert len(cells) == 4 * (1 + 4 * 3) * 3
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert {cell.loss for cell in cells if cell.experts == 1} == {"ce"}


def test_cells_are_named_by_any_of_their_axes(recipe: Table1Recipe) -> None:
    assert len(chosen_cells(recipe, ["tasks=20,experts=5"])) == 9
    (one,) = chosen_cells(recipe, ["tasks=20,experts=5,loss=ce,seed=1"])
    assert one.name == "tasks-20-experts-5-ce-seed-1"
    assert chosen_cells(recipe, []) == recipe.cells
    assert len(chosen_cells(recipe, ["tasks=10,seed=0", "tasks=10,experts=1"])) == 15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task=20", "did you mean 'tasks'"),
        ("tasks=25", r"no such cell; there are tasks \[10, 20, 30, 40\]"),
        ("experts=1,loss=task_router", "one expert: ce"),
        ("tasks", "write key=value"),
    ],
)
def test_cells_that_are_not_there_are_refused(recipe: Table1Recipe, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        chosen_cells(recipe, [text])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"epoch": 3}}, "unknown key 'settings.epoch'.*did you mean 'epochs'"),
        ({"settings": {"gate": "soft"}}, "unknown gate"),
        ({"settings": {"source": "web"}}, "unknown source"),
        ({"losses": ["cee"]}, "losses"),
        ({"tasks": [0]}, "tasks"),
        ({"tasks": []}, "need a value each"),
    ],
)
def test_bad_tables_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe({"kind": "table1", "name": "t", **change}, "test")
