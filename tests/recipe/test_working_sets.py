"""The recipe of a run on working sets: what it resolves to, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from routelab.errors import RecipeError
from routelab.recipe import WorkingSetsRecipe, load_recipe, parse_recipe, recipe_values

VALUES: dict[str, Any] = {
    "kind": "working-sets",
    "name": "small",
    "host": {"name": "mini-recurrent"},
    "num_steps": 16,
    "wise": {"discovery_steps": 6, "block_size": 16},
    "sweeps": {"mass": [0.9, 0.95], "discovery_steps": [4]},
}


def parse(**changes: Any) -> WorkingSetsRecipe:
    recipe = parse_recipe({**VALUES, **changes}, "here")
    assert isinstance(recipe, WorkingSetsRecipe)
    return recipe


def test_conditions_and_sweeps_share_the_settings() -> None:
    recipe = parse()
    assert [variant.name for variant in recipe.variants][:2] == ["full", "static"]
    assert all(variant.config.block_size == 16 for variant in recipe.variants)
    assert {variant.name: variant.config.mass for variant in recipe.swept} == {
        "mass-0.9": 0.9,
        "discovery_steps-4": 0.95,
    }
    assert all(variant.config.condition == "wise" for variant in recipe.swept)


def test_values_written_out_give_the_recipe_back() -> None:
    recipe = parse()
    assert parse_recipe(recipe_values(recipe), "back") == recipe


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"conditions": ["full", "wize"]}, "no condition is called 'wize'; did you mean 'wise'"),
        ({"conditions": ["full", "static"]}, "every run has 'full' and 'wise'"),
        ({"wise": {"mas": 0.9}}, "unknown key 'wise.mas'; did you mean 'mass'"),
        ({"wise": {"condition": "full"}}, "listed under conditions"),
        ({"wise": {"mass": 1.5}}, "mass must lie in"),
        ({"wise": {"discovery_steps": 16}}, "leaves none of the 16 steps"),
        ({"sweeps": {"discovery_steps": [20]}}, "discovery_steps-20: discovery_steps=20 leaves none"),
        ({"sweeps": {"masss": [0.9]}}, "'masss' cannot be swept; did you mean 'mass'"),
        ({"sweeps": {"mass": [0.9, 0.9]}}, "names one twice"),
        ({"questions": {"contexts": [8]}}, "greater than or equal to 32"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        parse(**changes)


@pytest.mark.parametrize("name", ["mini/wise", "demo/wise", "paper/wise-huginn", "paper/wise-recurrent-llama"])
def test_shipped_recipes_are_of_this_kind(name: str) -> None:
    assert isinstance(load_recipe(name), WorkingSetsRecipe)
