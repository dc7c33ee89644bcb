"""Studies that train: sweeps of depth, window and seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelab.cli.common import Backend, console, cores, quiet
from routelab.cli.study import Out, command_line, finish
from routelab.errors import RecipeError

if TYPE_CHECKING:
    from routelab.recipe import Recipe
    from routelab.sweeps.cells import Cell

Collect = Callable[["Recipe", Sequence["Cell"], Path, Mapping[str, str]], dict[str, Any]]
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


def seeds(
    recipe: Annotated[str, typer.Option(help="A training recipe.")] = "mini/aar",
    seed: Annotated[list[int] | None, typer.Option(help="A seed. Repeatable; the recipe's own.")] = None,
    set_: Set = None,
    out: Out = None,
    resume: Resume = False,
    backend: Backend = "local",
    workers: Workers = 1,
    dry_run: DryRun = False,
) -> None:
    """Sweep of the seeds: run the recipe with each alone; every arm against the control over all of them."""

    def cells(loaded: Recipe) -> list[Cell]:
        from routelab.sweeps.cells import seed_cells

        return seed_cells(loaded, seed or loaded.seeds)

    _sweep("seeds", "Arms by seed", recipe, set_, cells, out, (backend, workers), resume, dry_run)


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
        raise RecipeError(f"{name} is no training recipe, so it has nothing to sweep")
    quiet()
    made = build(loaded)
    execute = executor(backend, workers, max(1, cores() // workers))
    if dry_run:
        _list(kind, made)
        return
    from routelab.studies import Notes
    from routelab.sweeps.folder import claim_sweep
    from routelab.sweeps.run import by_workers, run_sweep

    folder = claim_sweep(out or Path(f"runs/study-{kind}"), kind, resume=resume)
    notes = Notes(command_line(), loaded.host, list(dict.fromkeys(each for cell in made for each in cell.recipe.seeds)))
    run = by_workers(execute)
    failed = run_sweep(made, folder, command=notes.command, execute=run, say=console(stderr=True).log)
    finish(folder, kind, title, _collector(kind)(loaded, made, folder, failed), notes)


def _collector(kind: str) -> Collect:
    if kind == "seeds":
        from routelab.sweeps.seeds import collect_seeds

        return collect_seeds
    from routelab.sweeps.collect import collect_sweep

    return partial(collect_sweep, kind)


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
        arms = [f"arms {', '.join(cell.recipe.arms)}"] if len(cell.recipe.arms) > 1 else []
        said = ", ".join([*(f"{key} {value}" for key, value in cell.point.items()), *arms])
        rows.append((cell.name, said or f"the arm {cell.recipe.control}, which all are compared with"))
    each = len(cells[0].recipe.seeds)
    print_pairs(console(), f"cells of the {kind} sweep, {each} seed{'s' if each != 1 else ''} each", rows)
