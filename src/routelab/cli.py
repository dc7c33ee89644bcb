"""The command line: words to calls. Everything heavy is imported inside the commands, so that ``--help`` is quick."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from routelab._version import __version__
from routelab.errors import ConfigError, RoutelabError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="routelab",
    help="Attach routing methods to pretrained language models, train them, measure them, show them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Speed and memory against peers, as ratios within one process.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Host = Annotated[str, typer.Option(help="A shipped mini, a directory, or a hub name.")]
Routing = Annotated[Path | None, typer.Option(help="A directory written by routelab.save, put on the host.")]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"] | None, typer.Option(help="The checkpoint's own by default.")
]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the checkpoint.")]
Raw = Annotated[bool, typer.Option("--raw", help="Take the prompt as it is, without the chat template.")]
Seed = Annotated[int, typer.Option(help="Seed of sampling.")]


def main() -> None:
    """Run the command line; an error of Routelab is one line and exit code 2."""
    try:
        app()
    except RoutelabError as error:
        _console(stderr=True).print(
            f"[bold red]error:[/] [red]{_escaped(str(error))}[/]", soft_wrap=True, highlight=False
        )
        raise SystemExit(2) from None


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        typer.echo(f"routelab {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/demo, or the next free name.")] = None,
) -> None:
    """Train and compare attention-aware and routing-only fine-tuning on the shipped mini, in a few minutes."""
    _run("mini/aar", [], out or _free(Path("runs/demo")), resume=False)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A YAML file or the name of a shipped recipe, such as mini/aar.")],
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/<name of the recipe> by default.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change one key: train.learning_rate=1e-3. Repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in this directory.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything without weights or training.")] = False,
) -> None:
    """Run a recipe: train every arm and seed, evaluate, compare, report."""
    if dry_run:
        _dry_run(recipe, set_ or [])
    else:
        _run(recipe, set_ or [], out, resume=resume)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="What to say to the model; - reads standard input.")],
    host: Host = "mini-moe",
    routing: Routing = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    num_samples: Annotated[int, typer.Option(min=1, help="Answers to draw; needs a temperature.")] = 1,
    seed: Seed = 0,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    raw: Raw = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole records as JSON lines.")] = False,
) -> None:
    """Answer one prompt, with the host alone or with saved routing on it."""
    text = _text(prompt)
    model, tokenizer = _model(host, routing, dtype, trust_remote_code)
    from routelab.evaluate import generate_answers

    records = generate_answers(
        model,
        tokenizer,
        [text if raw else [{"role": "user", "content": text}]],
        max_new_tokens=max_new_tokens,
        batch_size=1,
        num_samples=num_samples,
        temperature=temperature,
        seed=seed,
    )
    for record in records:
        typer.echo(json.dumps(record, ensure_ascii=False) if as_json else record["output"])


@app.command()
def trace(
    prompt: Annotated[str, typer.Argument(help="What to say to the model; - reads standard input.")],
    host: Host = "mini-moe",
    routing: Routing = None,
    layer: Annotated[list[int] | None, typer.Option(help="Show this layer only. Repeatable.")] = None,
    raw: Raw = False,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show, per token and layer, the chosen experts and weights, the gates, and the attention on the first token."""
    text = _text(prompt)
    model, tokenizer = _model(host, routing, dtype, trust_remote_code)
    from routelab.evaluate.prompts import render
    from routelab.report.terminal import print_trace
    from routelab.study.trace import trace as traced

    rendered = text if raw else render(tokenizer, [{"role": "user", "content": text}])
    found = traced(model, tokenizer, rendered).only(layer)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_trace(_console(), found.to_dict())


@app.command()
def evaluate(
    task: Annotated[str, typer.Option(help="mini-arithmetic, mini-facts, gsm8k or text-loss.")],
    host: Host = "mini-moe",
    routing: Routing = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many examples.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write summary.json and records.jsonl into this directory.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the task: shots=4. Repeatable.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 16,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="The task's own by default.")] = None,
    num_samples: Annotated[int, typer.Option(min=1, help="Answers per example; needs a temperature.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    seed: Seed = 0,
    dtype: Dtype = None,
    trust_remote_code: Trust = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Evaluate a host, or saved routing on it, on one task; report the number truthfully, with every record."""
    from routelab.recipe import assignments

    options = assignments(option or [], "--option")
    model, tokenizer = _model(host, routing, dtype, trust_remote_code)
    from routelab.evaluate import evaluate as evaluated
    from routelab.report.terminal import print_summary

    summary = evaluated(
        model,
        tokenizer,
        task,
        limit=limit,
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        num_samples=num_samples,
        temperature=temperature,
        seed=seed,
        records_path=None if out is None else out / "records.jsonl",
        options=options,
        on_progress=_progress(task),
    )
    if out is not None:
        from routelab.rundir import write_json

        write_json(out / "summary.json", {"host": host, "routing": routing and str(routing), **summary})
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False))
    else:
        print_summary(_console(), host if routing is None else f"{host} with {routing}", summary)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Draw the figures and write report.html of a run again, and print its tables."""
    from routelab.report.html import report_run
    from routelab.report.terminal import print_results

    results, written = report_run(run)
    print_results(_console(), results)
    typer.echo(f"\n{written[0]}")


@app.command()
def recipes(name: Annotated[str | None, typer.Argument(help="Print this recipe.")] = None) -> None:
    """List the shipped recipes, or print one, to be saved and changed."""
    from routelab.recipe import load_recipe, read_text, recipe_path, shipped_recipes
    from routelab.report.terminal import print_pairs

    if name is not None:
        typer.echo(read_text(recipe_path(name)), nl=False)
    else:
        print_pairs(_console(), "recipes", [(each, load_recipe(each).title) for each in shipped_recipes()])


@app.command()
def doctor() -> None:
    """Say what is installed, and which fast paths can be used here and why not."""
    _quiet()
    from routelab.doctor import environment, fast_paths
    from routelab.report.terminal import print_pairs

    print_pairs(_console(), "environment", environment())
    print_pairs(_console(), "fast paths", fast_paths())


@bench.command()
def window(
    length: Annotated[list[int], typer.Option(min=1, help="Sequence lengths. Repeatable.")] = [512, 1024, 2048, 4096],  # noqa: B006
    head_dim: Annotated[list[int], typer.Option(min=1, help="Head sizes. Repeatable.")] = [64, 128, 192, 256],  # noqa: B006
    layer_length: Annotated[int, typer.Option(min=0, help="Tokens of the OLMoE layer; 0 leaves it out.")] = 2048,
    passes: Annotated[int, typer.Option(min=1, help="Interleaved passes; medians are reported.")] = 9,
    dtype: Annotated[str, typer.Option()] = "float32",
    device: Annotated[str, typer.Option()] = "cpu",
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Time and peak memory of window attention against eager attention and plain SDPA."""
    _quiet()
    from routelab.bench.window import bench_window, window_tables
    from routelab.report.tables import Table
    from routelab.report.terminal import print_table
    from routelab.rundir import write_json

    with _console(stderr=True).status("measuring") as status:
        result = bench_window(
            length,
            head_dims=head_dim,
            passes=passes,
            layer_length=layer_length or None,
            dtype=dtype,
            device=device,
            progress=status.update,
        )
    for title, columns, rows in window_tables(result):
        print_table(_console(), Table(title, columns, rows, text=frozenset({"pass"})))
    if out is not None:
        write_json(out, result)


def _run(recipe: str, overrides: list[str], out: Path | None, *, resume: bool) -> None:
    from routelab.recipe import load_recipe
    from routelab.report.terminal import print_results
    from routelab.rundir import RunDirectory

    loaded = load_recipe(recipe, overrides)
    directory = RunDirectory.open(out or Path("runs") / loaded.name, loaded, resume=resume)
    _quiet()
    from routelab.run import run_recipe

    console = _console(stderr=True)
    results = run_recipe(loaded, directory, command=shlex.join(["routelab", *sys.argv[1:]]), say=console.log)
    print_results(_console(), results)
    typer.echo(f"\n{directory.report}")


def _dry_run(recipe: str, overrides: list[str]) -> None:
    from routelab.recipe import load_recipe

    loaded = load_recipe(recipe, overrides)
    _quiet()
    from routelab.dryrun import arm_table, dry_run, facts
    from routelab.report.terminal import print_pairs, print_table

    check = dry_run(loaded)
    print_pairs(_console(), f"dry run of {loaded.name}", facts(check))
    print_table(_console(), arm_table(check))


def _model(host: str, routing: Path | None, dtype: Any, trust_remote_code: bool) -> Any:
    _quiet()
    import routelab
    from routelab.recipe import HostSpec
    from routelab.run import load

    model, tokenizer = load(HostSpec(host, dtype=dtype, trust_remote_code=trust_remote_code))
    if routing is not None:
        routelab.load(routing, model)
    return model, tokenizer


def _progress(name: str) -> Callable[[int, int], None] | None:
    """Return a reporter of sequences done, on one line of a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, of: int) -> None:
        typer.echo(f"\r{name}: {done} of {of}" + ("\n" if done >= of else ""), nl=False, err=True)

    return show


def _text(prompt: str) -> str:
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise ConfigError("the prompt is empty")
    return text


def _free(path: Path) -> Path:
    """Return ``path``, or ``path-2``, ``path-3`` ...: the first that does not exist."""
    names = (path if n == 1 else path.with_name(f"{path.name}-{n}") for n in range(1, sys.maxsize))
    return next(name for name in names if not name.exists())


def _quiet() -> None:
    """Keep the libraries' progress bars and advice off the terminal; what is wrong is raised, not logged."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, log_path=False)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(" ".join(text.split()))


if __name__ == "__main__":
    main()
