"""A recipe: one YAML file that describes one run, read into frozen dataclasses.

    name: mini-aar
    title: Attention-aware routing on mini-moe
    host: {name: mini-moe, dtype: float32}
    arms:
      aar: [{method: aar, layers: all, window: 40}]
      routing-only: [{method: routing_only}]
    control: routing-only
    seeds: [0, 1, 2]
    data: [{source: mini-arithmetic, split: train, limit: 2000}]
    train: {steps: 100, batch_size: 8, learning_rate: 1e-3}
    evaluate: [{task: mini-arithmetic, limit: 200}]

Every key is checked: an unknown one is refused with the file, the path of the key and the nearest known key. The
resolved recipe, with all defaults written out, goes through YAML and back without change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from routelab.errors import RecipeError, closest
from routelab.recipe.inside import ACFStudy, GatesStudy, HarnessSpec, RoutingStudy, SinksStudy, StudySpec
from routelab.recipe.modes import ModesRecipe, parse_modes
from routelab.recipe.needs import KEY as NEEDS
from routelab.recipe.needs import Needs, recipe_needs
from routelab.recipe.reading import apply_override, assignments, build, read, read_text
from routelab.recipe.shipped import host_config_path, recipe_path, shipped_recipes
from routelab.recipe.specs import DataSpec, HostSpec, MethodSpec, TaskSpec
from routelab.recipe.table1 import Table1Recipe, parse_table1
from routelab.recipe.training import Recipe, parse_training
from routelab.recipe.working_sets import WorkingSetsRecipe, parse_working_sets
from routelab.recipe.writing import first_difference, recipe_values, recipe_yaml

__all__ = [
    "ACFStudy",
    "AnyRecipe",
    "DataSpec",
    "GatesStudy",
    "HarnessSpec",
    "HostSpec",
    "MethodSpec",
    "ModesRecipe",
    "Needs",
    "Recipe",
    "RoutingStudy",
    "SinksStudy",
    "StudySpec",
    "Table1Recipe",
    "TaskSpec",
    "WorkingSetsRecipe",
    "assignments",
    "first_difference",
    "host_config_path",
    "load_recipe",
    "parse_recipe",
    "read_text",
    "recipe_needs",
    "recipe_path",
    "recipe_values",
    "recipe_yaml",
    "shipped_recipes",
]


AnyRecipe = Recipe | ModesRecipe | Table1Recipe | WorkingSetsRecipe

PARSERS: Mapping[str, Callable[[Mapping[str, Any], str], AnyRecipe]] = MappingProxyType(
    {"training": parse_training, "modes": parse_modes, "table1": parse_table1, "working-sets": parse_working_sets}
)


def load_recipe(name: str | Path, overrides: Iterable[str] = ()) -> AnyRecipe:
    """Read a recipe from a YAML file, or a shipped one by name (``mini/aar``), with ``key.path=value`` overrides.

    Raises ``RecipeError`` naming the file and the key path for anything that is unknown, missing or out of domain.
    """
    path = recipe_path(name)
    values = read(read_text(path), str(path))
    if not isinstance(values, dict):
        raise RecipeError(f"{path} must hold a mapping of keys, not {type(values).__name__}")
    for override in overrides:
        apply_override(values, override)
    return parse_recipe(values, str(name))


def parse_recipe(values: Mapping[str, Any], origin: str) -> AnyRecipe:
    """Build a recipe from plain values; ``origin`` is the name that errors give to their source.

    ``kind`` says what kind of run it describes; without it, a training run. ``needs`` is checked and is no part of the
    run: :func:`recipe_needs` reads it.
    """
    kind = values.get("kind", "training")
    if kind not in PARSERS:
        raise RecipeError(f"{origin}: kind: no kind of run is called {kind!r}{closest(str(kind), PARSERS)}")
    build(Needs, values.get(NEEDS, {}), origin, NEEDS)
    return PARSERS[kind]({key: value for key, value in values.items() if key not in ("kind", NEEDS)}, origin)
