"""Cells are ordinary recipes of one arm, and what cannot be swept is refused."""

from __future__ import annotations

import pickle

import pytest

from routelab.errors import ConfigError, LayerError, RecipeError
from routelab.recipe import Recipe, load_recipe, parse_recipe, recipe_values
from routelab.sweeps.cells import CONTROL, depth_cells, named_views, swept_arm, window_cells

USABLE = [0, 1, 3, 5]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    found = load_recipe("mini/aar", ["arms.other=[{method: aar, window: 8}]"])
    assert isinstance(found, Recipe)
    return found


def test_depth(recipe: Recipe) -> None:
    cells = depth_cells(recipe, USABLE, starts=[1, 5], singles=[3])
    assert [cell.name for cell in cells] == [CONTROL, "from-01", "from-05", "only-03"]
    control, first, last, single = cells
    assert list(control.recipe.arms) == ["routing-only"] == [control.recipe.control]
    assert [cell.recipe.arms["aar"][0].config.layers for cell in (first, last, single)] == [(1, 3, 5), (5,), (3,)]
    assert first.point == {"form": "from", "layer": 1, "layers": [1, 3, 5]}
    for cell in cells:
        assert cell.recipe.name == f"mini-aar-{cell.name}"
        assert (cell.recipe.seeds, cell.recipe.train, cell.recipe.evaluate) == (
            recipe.seeds,
            recipe.train,
            recipe.evaluate,
        )
        assert parse_recipe(recipe_values(cell.recipe), "again") == cell.recipe
        assert pickle.loads(pickle.dumps(cell.recipe)) == cell.recipe
    assert first.recipe.arms["aar"][0].config.window == 40


def test_window(recipe: Recipe) -> None:
    cells = window_cells(recipe, windows=[10, 20], views=named_views(["time", "time+frequency"]))
    assert [cell.name for cell in cells[1:]] == [
        "time-010",
        "time-020",
        "time-frequency-010",
        "time-frequency-020",
    ]
    config = cells[-1].recipe.arms["aar"][0].config
    assert (config.window, config.views) == (20, ("time", "frequency"))
    assert cells[-1].point == {"window": 20, "views": ["time", "frequency"]}


def test_what_cannot_be_swept_is_named(recipe: Recipe) -> None:
    with pytest.raises(LayerError, match=r"layers \[2\] cannot be swept; .*\[0, 1, 3, 5\]"):
        depth_cells(recipe, USABLE, starts=[1, 2], singles=[])
    with pytest.raises(RecipeError, match="nothing to sweep"):
        depth_cells(recipe, USABLE, starts=[], singles=[])
    with pytest.raises(RecipeError, match="names a cell twice"):
        window_cells(recipe, windows=[10, 10], views=[("time",)])
    with pytest.raises(ConfigError, match="window must be"):
        window_cells(recipe, windows=[0], views=[("time",)])
    with pytest.raises(RecipeError, match="no view is called 'phase'"):
        named_views(["time+phase"])
    for name in ("mini/routing-only", "mini/taskrouting-moe"):
        other = load_recipe(name)
        assert isinstance(other, Recipe)
        with pytest.raises(RecipeError, match="needs an arm of attention-aware routing and a control without it"):
            swept_arm(other)
