"""Commands on recipes and run directories: demo, run, report, recipes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from routelab.cli.common import console, quiet

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
) -> None:
    """Run a recipe: train every arm and seed, evaluate, compare, report."""
    if dry_run:
        _dry_run(recipe, set_ or [], cell or [])
    else:
        _run(recipe, set_ or [], out, resume=resume, cells=cell or [])


def report(run: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Draw the figures and write report.html of a run again, and print its tables."""
    from routelab.report.html import report_run
    from routelab.report.terminal import print_page

    page, written = report_run(run)
    print_page(console(), page)
    typer.echo(f"\n{written[0]}")


def recipes(name: Annotated[str | None, typer.Argument(help="Print this recipe.")] = None) -> None:
    """List the shipped recipes, or print one, to be saved and changed."""
    from routelab.recipe import load_recipe, read_text, recipe_path, shipped_recipes
    from routelab.report.terminal import print_pairs

    if name is not None:
        typer.echo(read_text(recipe_path(name)), nl=False)
    else:
        print_pairs(console(), "recipes", [(each, load_recipe(each).title) for each in shipped_recipes()])


def _construct(folder: Path) -> None:
    """Invented facts as exact weights, with their certificate."""
    from routelab import theory
    from routelab.cli.construct import show_certificate
    from routelab.data.knowledge import fictional

    made = theory.construct_moe(fictional(4, templates=3, pairs=20))
    certificate = theory.certify(made)
    theory.save(made, certificate, folder)
    show_certificate(certificate, folder)


def _run(recipe: str, overrides: list[str], out: Path | None, *, resume: bool, cells: Sequence[str] = ()) -> None:
    from routelab.cli.kinds import actions
    from routelab.recipe import load_recipe
    from routelab.report.terminal import print_page
    from routelab.rundir import RunDirectory

    loaded = load_recipe(recipe, overrides)
    own = actions(loaded, cells)  # before anything is written: cells that do not exist are refused here
    directory = RunDirectory.open(out or Path("runs") / loaded.name, loaded, resume=resume)
    quiet()
    page = own.run(directory, shlex.join(["routelab", *sys.argv[1:]]), console(stderr=True))
    print_page(console(), page)
    typer.echo(f"\n{directory.report}")


def _dry_run(recipe: str, overrides: list[str], cells: Sequence[str]) -> None:
    from routelab.cli.kinds import actions
    from routelab.recipe import load_recipe

    loaded = load_recipe(recipe, overrides)
    quiet()
    actions(loaded, cells).check(console())


def _free(path: Path) -> Path:
    """Return ``path``, or ``path-2``, ``path-3`` ...: the first that does not exist."""
    names = (path if n == 1 else path.with_name(f"{path.name}-{n}") for n in range(1, sys.maxsize))
    return next(name for name in names if not name.exists())
