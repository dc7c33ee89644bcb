"""The command line: words to calls. Everything heavy is imported inside the commands, so that ``--help`` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from routelab import processes
from routelab._version import __version__
from routelab.cli import bench, construct, doctor, harness, models, runs, study, study_inside, study_sweeps
from routelab.cli.common import console
from routelab.errors import RoutelabError

#: Commands whose work several processes share.
SHARED = frozenset({"run", "evaluate", "lm-eval"})

app = typer.Typer(
    name="routelab",
    help="Attach routing methods to pretrained language models, train them, measure them, show them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench.app, name="bench")
for name, each in (
    ("depth", study_sweeps.depth),
    ("window", study_sweeps.window),
    ("seeds", study_sweeps.seeds),
    ("convergence", study_inside.convergence),
    ("working-set", study_inside.working_set),
    ("margins", study_inside.margins),
    ("interference", study_inside.interference),
):
    study.app.command(name)(each)
app.add_typer(study.app, name="study")
for command in (
    runs.demo,
    runs.run,
    models.generate,
    models.trace,
    models.evaluate,
    harness.compare,
    models.chat,
    models.export,
    construct.construct,
    runs.report,
    runs.recipes,
    doctor.doctor,
):
    app.command()(command)
app.command(
    "lm-eval",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)(harness.lm_eval)


def main() -> None:
    """Run the command line; an error of Routelab is one line and exit code 2."""
    try:
        app()
    except RoutelabError as error:
        if processes.is_first():
            console(stderr=True).print(
                f"[bold red]error:[/] [red]{_escaped(str(error))}[/]", soft_wrap=True, highlight=False
            )
        raise SystemExit(2) from None
    finally:
        processes.leave()


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"routelab {__version__}")
        raise typer.Exit
    if context.invoked_subcommand not in SHARED:
        processes.require_one(f"routelab {context.invoked_subcommand}")


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(" ".join(text.split()))
