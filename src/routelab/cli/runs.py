"""Commands on recipes and run directories: demo, run, report, recipes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routelab.cli.common import Backend, console, quiet

if TYPE_CHECKING:
    from routelab.recipe import AnyRecipe

#: Parts of the demo: the folder of each below the demo's, and its recipe.
DEMO = (("aar", "mini/aar"), ("pathlock", "demo/pathlock"), ("table1", "demo/table1"), ("wise", "demo/wise"))


def demo(
    out: Annotated[Path | None, typer.Option(help="Directory; runs/demo, or the next free name.")] = None,
) -> None:
    """Show every method on the shipped minis, in a few minutes: train, compare with the control, report."""
    folder = out or _free(Path("runs/demo"))
    for part, recipe in DEMO:
        _run(recipe, [], folder / part, resume=False)
    _construct(folder / "construct")
    parts = [folder / part for part, _ in DEMO]
    studies = [study for part in parts for study in _studies_of(part)]
    _report_several([*parts, *studies, folder / "construct"], folder)


def run(
    recipe: Annotated[str, typer.Argument(help="A YAML file or the name of a shipped recipe, such as mini/aar.")],
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/<name of the recipe> by default.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key: train.learning_rate=1e-3. Repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in this directory.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything without weights or training.")] = False,
    cell: Annotated[
        list[str] | None, typer.Option(help="Of a table, run this cell only: tasks=20,experts=5. Repeatable.")
    ] = None,
    backend: Backend = "local",
) -> None:
    """Run a recipe: train every arm and seed, evaluate, compare, report."""
    if dry_run:
        _dry_run(recipe, set_ or [], cell or [])
    else:
        _run(recipe, set_ or [], out, resume=resume, cells=cell or [], backend=backend)


def report(
    run: Annotated[list[Path], typer.Argument(help="A run, study or construction; several are compared.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory of the page of several; runs/comparison by default.")
    ] = None,
) -> None:
    """Draw the figures and write report.html of a run again, or one page of several; print the tables."""
    from routelab.report.html import report_run
    from routelab.report.terminal import print_page

    if len(run) > 1 or out is not None:
        _report_several(run, out or Path("runs/comparison"))
        return
    page, written = report_run(run[0])
    print_page(console(), page)
    typer.echo(f"\n{written[0]}")


def recipes(name: Annotated[str | None, typer.Argument(help="Print this recipe.")] = None) -> None:
    """List the shipped recipes with what they reproduce and need, or print one, to be saved and changed."""
    from routelab.recipe import read_text, recipe_path, shipped_recipes
    from routelab.report.terminal import print_pairs

    if name is not None:
        typer.echo(read_text(recipe_path(name)), nl=False)
    else:
        print_pairs(console(), "recipes", [(each, _described(each)) for each in shipped_recipes()])


def _described(name: str) -> str:
    from routelab.recipe import load_recipe, recipe_needs

    host, method = _host_and_method(load_recipe(name))
    needs = recipe_needs(name)
    told = {"reproduces": needs.reproduces, "memory": needs.memory, "data": needs.data, "time": needs.time}
    return "\n".join([f"{method} on {host}", *(f"{what}: {text}" for what, text in told.items() if text)])


def _host_and_method(recipe: AnyRecipe) -> tuple[str, str]:
    from routelab.recipe import ModesRecipe, Table1Recipe, WorkingSetsRecipe

    if isinstance(recipe, Table1Recipe):
        return "one layer", "taskrouting"
    if isinstance(recipe, ModesRecipe):
        return recipe.host.name, "pathlock"
    if isinstance(recipe, WorkingSetsRecipe):
        return recipe.host.name, "wise"
    names = dict.fromkeys(spec.method for specs in recipe.arms.values() for spec in specs)
    return recipe.host.name, ", ".join(names)


def _report_several(runs: list[Path], out: Path) -> None:
    from routelab.report.comparison import report_runs
    from routelab.report.terminal import print_page

    page, written = report_runs(runs, out)
    print_page(console(), page)
    typer.echo(f"\n{written[0]}")


def _studies_of(run: Path) -> list[Path]:
    """The directories of a run's studies, which have pages of their own."""
    return sorted((run / "studies").glob("*"))


def _construct(folder: Path) -> None:
    """Invented facts as exact weights, with their certificate."""
    from routelab import theory
    from routelab.cli.construct import show_certificate
    from routelab.data.knowledge import fictional
    from routelab.report.html import report_run

    made = theory.construct_moe(fictional(4, templates=3, pairs=20))
    certificate = theory.certify(made)
    theory.save(made, certificate, folder)
    report_run(folder)
    show_certificate(certificate, folder)


def _run(
    recipe: str,
    overrides: list[str],
    out: Path | None,
    *,
    resume: bool,
    cells: Sequence[str] = (),
    backend: str = "local",
) -> None:
    from routelab import processes
    from routelab.cli.kinds import actions
    from routelab.recipe import load_recipe
    from routelab.report.terminal import print_page
    from routelab.rundir import RunDirectory

    processes.join()
    loaded = load_recipe(recipe, overrides)
    own = actions(loaded, cells, backend)  # before anything is written: cells that do not exist are refused here
    directory = RunDirectory.open(out or Path("runs") / loaded.name, loaded, resume=resume)
    quiet()
    progress = console(stderr=True)
    progress.quiet = not processes.is_first()
    # Cells of a table that are named one by one do not meet, so several commands may share the directory.
    with nullcontext() if cells else directory.held():
        page = own.run(directory, shlex.join(["routelab", *sys.argv[1:]]), progress)
    if page is not None:
        print_page(console(), page)
        typer.echo(f"\n{directory.report}")


def _dry_run(recipe: str, overrides: list[str], cells: Sequence[str]) -> None:
    from routelab import processes
    from routelab.cli.kinds import actions
    from routelab.recipe import load_recipe

    processes.require_one("a dry run")
    loaded = load_recipe(recipe, overrides)
    quiet()
    actions(loaded, cells).check(console())


def _free(path: Path) -> Path:
    """Return ``path``, or ``path-2``, ``path-3`` ...: the first that does not exist."""
    names = (path if n == 1 else path.with_name(f"{path.name}-{n}") for n in range(1, sys.maxsize))
    return next(name for name in names if not name.exists())
