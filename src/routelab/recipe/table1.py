"""The recipe of Table 1 of arXiv 2606.14398: a grid of tasks, experts and losses on the one-layer host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from routelab.errors import RecipeError, RoutelabError, closest
from routelab.recipe.reading import CHECKED, TUPLE, Scalar, Seed, assignments, build, expect, refuse_unknown
from routelab.table1.spec import CellSpec, grid

#: What names a cell in the table; all other settings are shared by its cells.
AXES = ("tasks", "experts", "loss", "seed")
Loss = Literal["ce", "task_router", "load_balance"]
Counts = Annotated[tuple[Annotated[int, Field(strict=True, ge=1)], ...], TUPLE]


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Table1Recipe:
    """One table. ``settings`` are those of ``CellSpec`` that all cells share; ``workers`` processes run them."""

    kind: Literal["table1"] = "table1"
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    tasks: Counts = (10, 20, 30, 40)
    experts: Counts = (1, 3, 5, 7, 9)
    losses: Annotated[tuple[Literal["ce", "task_router", "load_balance"], ...], TUPLE] = (
        "ce",
        "task_router",
        "load_balance",
    )
    seeds: Annotated[tuple[Seed, ...], TUPLE] = Field(default=(0, 1, 2), min_length=1)
    settings: dict[str, Scalar] = Field(default_factory=dict)
    workers: int = Field(default=2, ge=1)
    title: str = ""
    note: str = ""

    @property
    def cells(self) -> list[CellSpec]:
        """The cells in the order to run them: whole tables of one seed, the longest cells first."""
        return grid(self.tasks, self.experts, self.losses, self.seeds, **self.settings)


def parse_table1(values: Mapping[str, Any], origin: str) -> Table1Recipe:
    """Build a recipe of this kind from plain values; ``origin`` is the name that errors give to their source."""
    refuse_unknown(Table1Recipe, values, origin, "")
    known = [field.name for field in dataclasses.fields(CellSpec) if field.name not in AXES]
    for key in expect(dict, values.get("settings", {}), origin, "settings"):
        if key not in known:
            raise RecipeError(f"{origin}: unknown key {f'settings.{key}'!r}{closest(str(key), known)}")
    recipe: Table1Recipe = build(Table1Recipe, dict(values), origin, "")
    try:
        cells = recipe.cells
    except (RoutelabError, TypeError) as error:
        raise RecipeError(f"{origin}: settings: {error}") from error
    if not cells:
        raise RecipeError(f"{origin}: tasks, experts and losses need a value each")
    return recipe


def chosen_cells(recipe: Table1Recipe, cells: Iterable[str]) -> list[CellSpec]:
    """Return the cells that texts such as ``tasks=20,experts=5`` name, in order; all of them where there is no text.

    Raises:
        RecipeError: an unknown axis, or a cell that the recipe does not have.
    """
    texts = list(cells)
    if not texts:
        return recipe.cells
    found = []
    for text in texts:
        wanted = assignments(text.split(","), "--cell")
        for axis in wanted:
            if axis not in AXES:
                raise RecipeError(f"--cell {text!r}: no axis is called {axis!r}{closest(axis, AXES)}")
        named = [cell for cell in recipe.cells if all(getattr(cell, axis) == value for axis, value in wanted.items())]
        if not named:
            raise RecipeError(
                f"--cell {text!r}: {recipe.name} has no such cell; there are tasks {list(recipe.tasks)}, experts "
                f"{list(recipe.experts)}, losses {list(recipe.losses)} (one expert: ce), seeds {list(recipe.seeds)}"
            )
        found += named
    return [cell for cell in recipe.cells if cell in found]
