"""What each kind of recipe does when it is run, and when it is only checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from routelab.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from routelab.recipe import AnyRecipe, Recipe, Table1Recipe
    from routelab.report.page import Page
    from routelab.rundir import RunDirectory
    from routelab.table1 import CellSpec


@dataclass(frozen=True)
class Actions:
    """``run`` takes the run directory, the command line and a console for progress, and returns the
    page in the first process; ``check`` prints what it found."""

    run: Callable[[RunDirectory, str, Console], Page | None]
    check: Callable[[Console], None]


def actions(recipe: AnyRecipe, cells: Sequence[str], backend: str = "local") -> Actions:
    """Return the actions of a recipe, limited to the ``cells`` of a table, which run on ``backend``.

    Raises:
        ConfigError: cells of a recipe that is no table. RecipeError: cells that the table does not have. LaunchError:
            several processes for a recipe that they cannot share.
    """
    from routelab import processes
    from routelab.execution import executor
    from routelab.recipe import ModesRecipe, Table1Recipe, WorkingSetsRecipe
    from routelab.recipe.table1 import chosen_cells

    if isinstance(recipe, Table1Recipe | WorkingSetsRecipe):
        processes.require_one(recipe.name)
    if isinstance(recipe, Table1Recipe):
        executor(backend, recipe.workers, 1)  # refuses an unknown backend before anything is written
        return _table1(recipe, chosen_cells(recipe, cells), backend)
    if cells:
        raise ConfigError(f"{recipe.name} is no table, so it has no cells; leave --cell out")
    if backend != "local":
        executor(backend, 1, 1)  # an unknown backend is an error of its own
        raise ConfigError(f"{recipe.name} is no table, so it has no cells to run on {backend!r}; leave --backend out")
    if isinstance(recipe, ModesRecipe):
        from routelab.dryrun_modes import check_modes
        from routelab.modes import run_modes

        return _telling(recipe, run_modes, check_modes)
    if isinstance(recipe, WorkingSetsRecipe):
        from routelab.working_sets.check import check_working_sets
        from routelab.working_sets.run import run_working_sets

        return _telling(recipe, run_working_sets, check_working_sets)
    return _training(recipe)


def _telling(
    recipe: AnyRecipe, run: Callable[..., Page | None], check: Callable[..., list[tuple[str, str]]]
) -> Actions:
    def show(console: Console) -> None:
        _pairs(console, recipe, check(recipe))

    return Actions(lambda directory, command, console: run(recipe, directory, command=command, say=console.log), show)


def _training(recipe: Recipe) -> Actions:
    from routelab.dryrun import arm_table, dry_run, facts
    from routelab.report.terminal import print_table
    from routelab.run import run_recipe

    def show(console: Console) -> None:
        check = dry_run(recipe)
        _pairs(console, recipe, facts(check))
        print_table(console, arm_table(check))

    return Actions(
        lambda directory, command, console: run_recipe(recipe, directory, command=command, say=console.log), show
    )


def _table1(recipe: Table1Recipe, only: Sequence[CellSpec], backend: str) -> Actions:
    from routelab.table1.run import run_table1

    run = partial(run_table1, recipe, only=only, backend=backend)

    def show(console: Console) -> None:
        shape = f"tasks {list(recipe.tasks)}, experts {list(recipe.experts)}, losses {list(recipe.losses)}"
        told = f"{len(only)} of {len(recipe.cells)}: {shape}, seeds {list(recipe.seeds)}"
        _pairs(console, recipe, [("cells", told), ("workers", str(recipe.workers))])

    return Actions(lambda directory, command, console: run(directory, command=command, console=console), show)


def _pairs(console: Console, recipe: AnyRecipe, pairs: Sequence[tuple[str, str]]) -> None:
    from routelab.report.terminal import print_pairs

    print_pairs(console, f"dry run of {recipe.name}", pairs)
