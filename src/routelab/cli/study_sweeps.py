"""Studies that train: sweeps of depth and window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelab.cli.common import Backend, console, cores, quiet
from routelab.cli.study import Out, command_line, finish
from routelab.errors import RecipeError

if TYPE_CHECKING:
    from routelab.recipe import Recipe
    from routelab.sweeps.cells import Cell

RecipeName = Annotated[str, typer.Option(help="A training recipe with an arm of attention-aware routing.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change one key of the recipe. Repeatable.")]
Resume = Annotated[bool, typer.Option("--resume", help="Run what is missing in this directory.")]
Workers = Annotated[int, typer.Option(min=1, help="Cells at a time; they share the cores.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the cells and train nothing.")]


def depth(
    recipe: RecipeName = "mini/aar",
    start: Annotated[list[int] | None, typer.Option(help="Route from this layer on. Repeatable; every layer.")] = None,
    single: Annotated[list[int] | None, typer.Option(help="Route in this layer alone. Repeatable; none.")] = None,
    set_: Set = None,
    out: Out = None,
    resume: Resume = False,
    backend: Backend = "local",
    workers: Workers = 1,
    dry_run: DryRun = False,
) -> None:
    """Sweep of the layers that see attention: train an arm for each start or single layer; accuracy by task."""

    def cells(loaded: Recipe) -> list[Cell]:
        from routelab.sweeps.cells import depth_cells

        usable = _usable(loaded)
        starts = start if start is not None else [] if single else usable
        return depth_cells(loaded, usable, starts=starts, singles=single or [])

    execution = (backend, workers)
    _sweep("depth", "Attention-aware routing by depth", recipe, set_, cells, out, execution, resume, dry_run)


def window(
    recipe: RecipeName = "mini/aar",
    size: Annotated[list[int] | None, typer.Option(help="A window size M. Repeatable; 10, 20, 64.")] = None,
    views: Annotated[list[str] | None, typer.Option(help="time or time+frequency. Repeatable; both.")] = None,
    set_: Set = None,
    out: Out = None,
    resume: Resume = False,
    backend: Backend = "local",
    workers: Workers = 1,
    dry_run: DryRun = False,
) -> None:
    """Sweep of the window M and the views: train an arm for each; accuracy by task."""

    def cells(loaded: Recipe) -> list[Cell]:
        from routelab.sweeps.cells import named_views, window_cells

        chosen = named_views(views or ["time", "time+frequency"])
        return window_cells(loaded, windows=size or [10, 20, 64], views=chosen)

    execution = (backend, workers)
    _sweep("window", "Attention-aware routing by window", recipe, set_, cells, out, execution, resume, dry_run)


def _sweep(
    kind: str,
    title: str,
    name: str,
    overrides: Sequence[str] | None,
    build: Callable[[Recipe], list[Cell]],
    out: Path | None,
    execution: tuple[str, int],
    resume: bool,
    dry_run: bool,
) -> None:
    from routelab.execution import executor
    from routelab.recipe import Recipe, load_recipe

    backend, workers = execution
    loaded = load_recipe(name, overrides or [])
    if not isinstance(loaded, Recipe):
        raise RecipeError(f"{name} is no training recipe, so it has no layers or windows to sweep")
    quiet()
    made = build(loaded)
    execute = executor(backend, workers, max(1, cores() // workers))
    if dry_run:
        _list(kind, made)
        return
    folder = out or Path(f"runs/study-{kind}")
    if folder.exists() and any(folder.iterdir()) and not resume:
        raise RecipeError(
            f"{folder} already holds something; continue a sweep with --resume or choose another with --out"
        )
    from routelab.studies import Notes
    from routelab.sweeps.collect import collect_sweep
    from routelab.sweeps.run import by_workers, run_sweep

    notes = Notes(command_line(), loaded.host, loaded.seeds)
    run = by_workers(execute)
    failed = run_sweep(made, folder, command=notes.command, execute=run, say=console(stderr=True).log)
    finish(folder, kind, title, collect_sweep(kind, loaded, made, folder, failed), notes)


def _usable(recipe: Recipe) -> list[int]:
    """Layers of the recipe's host that have a router and softmax attention, found without its weights."""
    from routelab.dryrun import host_config, meta_model
    from routelab.hosts.locate import locate

    config, _ = host_config(recipe.host)
    located = locate(meta_model(config, recipe.host))
    return [layer.index for layer in located.routed if layer.attention is not None]


def _list(kind: str, cells: Sequence[Cell]) -> None:
    from routelab.report.terminal import print_pairs

    rows: list[tuple[str, Any]] = []
    for cell in cells:
        said = ", ".join(f"{key} {value}" for key, value in cell.point.items())
        rows.append((cell.name, said or f"the arm {cell.recipe.control}, which all are compared with"))
    print_pairs(console(), f"cells of the {kind} sweep, {len(cells[0].recipe.seeds)} seeds each", rows)
