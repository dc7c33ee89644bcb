"""Studies: numbers from inside a model, with their figures. ``routelab study`` lists them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelab.cli.common import Dtype, Host, Routing, Trust, console, load_model, progress
from routelab.errors import ConfigError

if TYPE_CHECKING:
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

FEW_SHOT = "mini-few-shot"


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
    from routelab.studies import claim_folder
    from routelab.study.acf import window_acf

    folder = claim_folder(out or Path("runs/study-acf"), "acf")
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    notes = _notes(host, dtype, trust_remote_code)
    texts = _texts(notes, tokenizer, task or [FEW_SHOT], option, limit, longest)
    found = window_acf(model, texts, windows=window or [20, 64, 128], layers=layer)
    finish(folder, "acf", "Autocorrelation of the attention window", found, notes)


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
    from routelab.studies import claim_folder
    from routelab.study.sinks import compare_sinks, patch_sinks
    from routelab.study.sinks import sinks as measured

    if routing is None:
        raise ConfigError("sinks are compared between two routings of a host: give one with --routing")
    if layer and not patch:
        raise ConfigError("--layer names layers to patch; add --patch")
    folder = claim_folder(out or Path("runs/study-sinks"), "sinks")
    notes = _notes(host, dtype, trust_remote_code)
    chosen = task or [FEW_SHOT]
    # One model at a time, unless the patch needs both.
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    ours = measured(model, _texts(notes, tokenizer, chosen, option, limit, longest))
    donor = model if patch else None
    del model
    control, _ = load_model(host, against, dtype, trust_remote_code)
    found = compare_sinks(ours, measured(control, _texts(notes, tokenizer, chosen, option, limit, longest)))
    found["names"] = _names(routing, against)
    found["patch"] = None
    if donor is not None:
        texts = _texts(notes, tokenizer, chosen, option, limit, longest)
        found["patch"] = patch_sinks(control, donor, texts, layers=layer)
    finish(folder, "sinks", "Attention sinks", found, notes)


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
    from routelab.studies import claim_folder
    from routelab.study.routing_maps import study_routing

    folder = claim_folder(out or Path("runs/study-routing"), "routing")
    notes = _notes(host, dtype, trust_remote_code)
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    compared = compare or against is not None
    control = load_model(host, against, dtype, trust_remote_code)[0] if compared else None
    chosen = task or ["mini-few-shot", "mini-facts", "mini-paragraphs"]
    texts = _texts(notes, tokenizer, chosen, option, limit, longest)
    found = study_routing(model, tokenizer, texts, chosen, control=control)
    found["names"] = _names(routing, against)
    finish(folder, "routing", "What the routers do", found, notes)


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
    from routelab.studies import claim_folder
    from routelab.study.gates import study_gates

    folder = claim_folder(out or Path("runs/study-gates"), "gates")
    notes = _notes(host, dtype, trust_remote_code)
    model, tokenizer = load_model(host, routing, dtype, trust_remote_code)
    found = study_gates(model, _texts(notes, tokenizer, task or [FEW_SHOT], option, limit, longest))
    finish(folder, "gates", "Gates of attention-aware routing", found, notes)


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
    from routelab.report.terminal import print_page
    from routelab.studies import write_study

    print_page(console(), write_study(folder, study, title, found, notes))
    typer.echo(f"\n{folder / 'report.html'}")


def command_line() -> str:
    """Return the command as it was given."""
    return shlex.join(["routelab", *sys.argv[1:]])


def _notes(host: str, dtype: Any, trust_remote_code: bool) -> Notes:
    from routelab.recipe import HostSpec
    from routelab.studies import Notes

    return Notes(command_line(), HostSpec(host, dtype=dtype, trust_remote_code=trust_remote_code))


def _texts(
    notes: Notes, tokenizer: Any, tasks: list[str], option: list[str] | None, limit: int, longest: int | None
) -> Iterator[Any]:
    """Texts of every task, one after the other; options go to the only task, or to the first."""
    from routelab.recipe import assignments
    from routelab.study.texts import study_texts

    options = assignments(option or [], "--option")
    for number, name in enumerate(tasks):
        own = options if number == 0 else {}
        shown = progress(name)
        texts = notes.texts(study_texts(tokenizer, name, limit=limit, options=own, longest=longest))
        for done, text in enumerate(texts, start=1):
            yield text
            if shown is not None:
                shown(done, limit)


def _names(routing: Path | None, against: Path | None) -> dict[str, str]:
    """What to call the two models: the folders of their routings, which are <arm>/seed-<n> in a run directory."""
    return {"model": _named(routing), "control": _named(against)}


def _named(routing: Path | None) -> str:
    if routing is None:
        return "the host"
    parts = routing.resolve().parts
    return f"{parts[-2]}, {parts[-1]}" if parts[-1].startswith("seed-") else parts[-1]
