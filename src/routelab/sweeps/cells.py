"""The cells of a sweep: ordinary recipes, each of one arm, made from one training recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelab.errors import LayerError, RecipeError, closest
from routelab.methods.aar.config import VIEWS
from routelab.recipe import MethodSpec, Recipe

CONTROL = "control"


@dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
        name: its folder. point: where it stands in the sweep; empty for the control.
        recipe: what is run; its single arm is also its ``control``.
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
    return Cell(name, point, replace(recipe, name=f"{recipe.name}-{name}", arms={arm: methods}, control=arm))


def _with_control(recipe: Recipe, cells: Sequence[Cell]) -> list[Cell]:
    swept_arm(recipe)
    names = [cell.name for cell in cells]
    if not cells:
        raise RecipeError(f"{recipe.name}: there is nothing to sweep")
    if len(set(names)) < len(names):
        raise RecipeError(f"{recipe.name}: the sweep names a cell twice: {', '.join(names)}")
    own = {recipe.control: recipe.arms[recipe.control]}
    return [Cell(CONTROL, {}, replace(recipe, name=f"{recipe.name}-{CONTROL}", arms=own)), *cells]
