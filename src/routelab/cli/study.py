"""Studies: numbers from inside a model, with their figures. ``routelab study`` lists them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelab.cli.common import Dtype, Host, Routing, Trust, console, load_model, progress
from routelab.errors import ConfigError

if TYPE_CHECKING:
    from routelab.report.page import Page
    from routelab.studies import Notes

app = typer.Typer(
    help="Look inside: attention, sinks, routing, gates, lengths, sweeps, working sets, interference.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path | None, typer.Option(help="Directory of the study; runs/study-NAME by default.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Whose texts are read: mini-few-shot, gsm8k, ...")]
Options = Annotated[list[str] | None, typer.Option("--option", help="An option of the task: shots=5. Repeatable.")]
Limit = Annotated[int, typer.Option(min=1, help="Texts of each task.")]
Longest = Annotated[int | None, typer.Option(min=2, help="Cut longer texts to this many tokens.")]
Against = Annotated[Path | None, typer.Option(help="Routing of the control; the host untouched by default.")]
Layers = Annotated[list[int] | None, typer.Option("--layer", help="This layer only. Repeatable.")]


@app.callback()
def study(context: typer.Context) -> None:
    if context.invoked_subcommand is not None:
        return
    from routelab.report.terminal import print_pairs

    commands = context.command.commands  # type: ignore[attr-defined]
    print_pairs(console(), "studies", [(name, each.get_short_help_str(90)) for name, each in sorted(commands.items())])


@app.command()
def acf(
    host: Host = "mini-moe",
    routing: Routing = None,
    task: Tasks = None,
    option: Options = None,
    limit: Limit = 16,
    longest: Longest = None,
    window: Annotated[list[int] | None, typer.Option(help="A window size M. Repeatable; 20, 64, 128.")] = None,
    layer: Layers = None,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """Autocorrelation of the attention window, and the lag where it falls below 0.1."""
    texts = _texts(task, option, limit, longest)
    _study("acf", texts | {"window": window, "layers": layer}, host, dtype, trust_remote_code, routing, None, out)


@app.command()
def sinks(
    host: Host = "mini-moe",
    routing: Routing = None,
    against: Against = None,
    task: Tasks = None,
    option: Options = None,
    limit: Limit = 32,
    longest: Longest = None,
    patch: Annotated[
        bool, typer.Option("--patch", help="Also patch the model's routing into the control, layer by layer.")
    ] = False,
    layer: Layers = None,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """Attention on the first token, model against control, and what one layer's routing does to it."""
    if routing is None:
        raise ConfigError("sinks are compared between two routings of a host: give one with --routing")
    if layer and not patch:
        raise ConfigError("--layer names layers to patch; add --patch")
    texts = _texts(task, option, limit, longest)
    _study("sinks", texts | {"patch": patch, "layers": layer}, host, dtype, trust_remote_code, routing, against, out)


@app.command()
def routing(
    host: Host = "mini-moe",
    routing: Routing = None,
    against: Against = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with the control, --against or the host.")
    ] = False,
    task: Tasks = None,
    option: Options = None,
    limit: Limit = 64,
    longest: Longest = None,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """Expert load, entropy, co-activation, agreement of two models, experts by task and kind of token."""
    texts = _texts(task, option, limit, longest)
    compared = compare or against is not None
    _study("routing", texts | {"compare": compared}, host, dtype, trust_remote_code, routing, against, out)


@app.command()
def gates(
    routing: Annotated[Path, typer.Option(help="A saved attention-aware routing.")],
    host: Host = "mini-moe",
    task: Tasks = None,
    option: Options = None,
    limit: Limit = 64,
    longest: Longest = None,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    out: Out = None,
) -> None:
    """Gates of attention-aware routing per layer, view and expert, and the tokens whose experts they change."""
    texts = _texts(task, option, limit, longest)
    _study("gates", texts, host, dtype, trust_remote_code, routing, None, out)


@app.command()
def lengths(
    records: Annotated[list[Path], typer.Option(help="Records of the model's answers; one file a seed. Repeatable.")],
    against: Annotated[list[Path], typer.Option(help="Records of the control's, in the same order. Repeatable.")],
    name: Annotated[str, typer.Option(help="What to call the model.")] = "model",
    control: Annotated[str, typer.Option(help="What to call the control.")] = "control",
    out: Out = None,
) -> None:
    """Lengths of paired answers by who was right: mean, median, P99, ramble rate."""
    from routelab.manifest import rows_hash
    from routelab.rundir import read_jsonl
    from routelab.studies import Notes, claim_folder
    from routelab.study.lengths import compare_lengths, read_answers

    folder = claim_folder(out or Path("runs/study-lengths"), "lengths")
    notes = Notes(command_line())
    ours, theirs = ([read_answers(path) for path in paths] for paths in (records, against))
    for path in (*records, *against):
        rows = read_jsonl(path)
        notes.data[str(path)] = {"rows": len(rows), "sha256": rows_hash(rows)}
    found = compare_lengths(ours, theirs) | {"names": {"model": name, "control": control}}
    finish(folder, "lengths", "Lengths of answers by outcome", found, notes)


def finish(folder: Path, study: str, title: str, found: Mapping[str, Any], notes: Notes) -> None:
    """Write a study and print its page."""
    from routelab.studies import write_study

    _show(folder, write_study(folder, study, title, found, notes))


def command_line() -> str:
    """Return the command as it was given."""
    return shlex.join(["routelab", *sys.argv[1:]])


def _show(folder: Path, page: Page) -> None:
    from routelab.report.terminal import print_page

    print_page(console(), page)
    typer.echo(f"\n{folder / 'report.html'}")


def _texts(task: list[str] | None, option: list[str] | None, limit: int, longest: int | None) -> dict[str, Any]:
    """What a study reads, as its recipe has it; options go to the only task, or to the first."""
    from routelab.recipe import assignments

    return {"tasks": task, "options": assignments(option or [], "--option"), "limit": limit, "longest": longest}


def _study(
    name: str,
    values: Mapping[str, Any],
    host: str,
    dtype: Any,
    trust_remote_code: bool,
    routing: Path | None,
    against: Path | None,
    out: Path | None,
) -> None:
    """Make a study of a routing, with what is given of its ``values``, and print its page."""
    from routelab.recipe import HostSpec
    from routelab.recipe.inside import parse_study

    given = {key: value for key, value in values.items() if value not in (None, [])}
    spec = parse_study({"study": name, **given}, "routelab study", name)
    from routelab.routing_studies import Routed, run_study
    from routelab.studies import Notes, claim_folder

    folder = claim_folder(out or Path(f"runs/study-{name}"), name)
    named = HostSpec(host, dtype=dtype, trust_remote_code=trust_remote_code)
    routed = Routed(named, routing, against, lambda path: load_model(host, path, dtype, trust_remote_code))
    _show(folder, run_study(spec, routed, folder, Notes(command_line(), named), progress))
