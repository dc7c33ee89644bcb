"""The cells of a sweep: ordinary recipes, each of one arm or of one seed, made from one training recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelab.errors import LayerError, RecipeError, closest
from routelab.methods.aar.config import VIEWS
from routelab.recipe import MethodSpec, Recipe, recipe_values
from routelab.recipe.training import parse_training

CONTROL = "control"


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        name: its folder. point: where it stands in the sweep; empty for the control.
        recipe: what is run: all arms of one seed, or a single arm, which is also its ``control``.
    """

    name: str
    point: Mapping[str, Any]
    recipe: Recipe


def depth_cells(recipe: Recipe, usable: Sequence[int], *, starts: Sequence[int], singles: Sequence[int]) -> list[Cell]:
    """Return the control, one cell for each starting layer and one for each single layer.

    A start at *l* routes by attention in every usable layer from *l* on (arXiv 2609.20974, figure 4).

    Args:
        usable: layers of the host with a router and softmax attention.

    Raises:
        LayerError: a layer that is not usable. RecipeError: as :func:`window_cells`.
    """
    unusable = sorted({*starts, *singles} - set(usable))
    if unusable:
        raise LayerError(
            f"layers {unusable} cannot be swept; layers with a router and softmax attention: {list(usable)}"
        )
    points = [("from", layer, [each for each in usable if each >= layer]) for layer in starts]
    points += [("only", layer, [layer]) for layer in singles]
    cells = [
        _cell(recipe, f"{form}-{layer:02d}", {"form": form, "layer": layer, "layers": layers}, layers=layers)
        for form, layer, layers in points
    ]
    return _with_control(recipe, cells)


def window_cells(recipe: Recipe, *, windows: Sequence[int], views: Sequence[Sequence[str]]) -> list[Cell]:
    """Return the control and one cell for each window size M and choice of views (arXiv 2609.20974, table 3).

    Raises:
        RecipeError: the recipe has no arm of attention-aware routing, no arm without it as a control, or nothing is
            swept. ConfigError: a window or view that does not exist.
    """
    cells = [
        _cell(
            recipe,
            f"{'-'.join(chosen)}-{window:03d}",
            {"window": window, "views": list(chosen)},
            window=window,
            views=tuple(chosen),
        )
        for chosen in views
        for window in windows
    ]
    return _with_control(recipe, cells)


def seed_cells(recipe: Recipe, seeds: Sequence[int]) -> list[Cell]:
    """Return one cell for each seed: the recipe with all its arms, of that seed alone.

    Its ``studies`` and ``harness`` tasks are left out: they look at one seed only.

    Raises:
        RecipeError: no seed, a seed that is named twice, or one that a recipe does not take.
    """
    values = recipe_values(recipe)
    cells = []
    for seed in seeds:
        own = values | {"name": f"{recipe.name}-seed-{seed}", "seeds": [seed], "studies": [], "harness": None}
        cells.append(Cell(f"seed-{seed}", {"seed": seed}, parse_training(own, recipe.name)))
    _require_distinct(recipe, cells)
    return cells


def named_views(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return choices of views from texts such as ``time`` and ``time+frequency``.

    Raises:
        RecipeError: an unknown view.
    """
    chosen = [tuple(name.split("+")) for name in names]
    for view in (view for each in chosen for view in each):
        if view not in VIEWS:
            raise RecipeError(f"no view is called {view!r}{closest(view, VIEWS)}; join two with +")
    return chosen


def swept_arm(recipe: Recipe) -> str:
    """Return the first arm of attention-aware routing."""
    arm = next((arm for arm, specs in recipe.arms.items() if any(spec.method == "aar" for spec in specs)), None)
    if arm is None or arm == recipe.control:
        raise RecipeError(
            f"{recipe.name}: a sweep needs an arm of attention-aware routing and a control without it; arms: "
            f"{', '.join(recipe.arms)}, control: {recipe.control}"
        )
    return arm


def _cell(recipe: Recipe, name: str, point: Mapping[str, Any], **changes: Any) -> Cell:
    arm = swept_arm(recipe)
    methods = tuple(
        MethodSpec(spec.method, dataclasses.replace(spec.config, **changes)) if spec.method == "aar" else spec
        for spec in recipe.arms[arm]
    )
    return Cell(name, point, _alone(recipe, name, arm, methods))


def _alone(recipe: Recipe, name: str, arm: str, methods: tuple[MethodSpec, ...]) -> Recipe:
    """One arm of a recipe, without what compares it with the control inside the run."""
    named = f"{recipe.name}-{name}"
    return replace(recipe, name=named, arms={arm: methods}, control=arm, studies=(), harness=None)


def _with_control(recipe: Recipe, cells: Sequence[Cell]) -> list[Cell]:
    swept_arm(recipe)
    _require_distinct(recipe, cells)
    control = _alone(recipe, CONTROL, recipe.control, recipe.arms[recipe.control])
    return [Cell(CONTROL, {}, control), *cells]


def _require_distinct(recipe: Recipe, cells: Sequence[Cell]) -> None:
    names = [cell.name for cell in cells]
    if not cells:
        raise RecipeError(f"{recipe.name}: there is nothing to sweep")
    if len(set(names)) < len(names):
        raise RecipeError(f"{recipe.name}: the sweep names a cell twice: {', '.join(names)}")
