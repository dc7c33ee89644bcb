"""Commands around the evaluation harness: lm-eval, and the comparison of two results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelab.cli.common import console, quiet, writable

if TYPE_CHECKING:
    from rich.console import Console


def lm_eval(context: typer.Context) -> None:
    """Run the lm-evaluation-harness with our models and local tasks; every argument is its own.

    For example: routelab lm-eval run --model_args host=mini-moe --tasks routelab_gsm8k --limit 2. Its own help:
    routelab lm-eval run --help.
    """
    quiet()
    from routelab.evaluate.harness import run_command

    run_command(context.args)


def compare(
    first: Annotated[str, typer.Argument(help="A run directory (RUN:ARM for another arm), or results of one.")],
    second: Annotated[str, typer.Argument(help="What it is compared with: the same host, on the same examples.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the comparison into this JSON file.", callback=writable)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Compare two results example by example: differences with paired intervals, and the answers that changed."""
    from routelab.evaluate.comparing import compare_results

    found = compare_results(first, second)
    if out is not None:
        from routelab.rundir import write_json

        write_json(out, found)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
    else:
        _print(console(), found)


def evaluate_harness(
    tasks: str,
    *,
    model_args: dict[str, Any],
    limit: int | None = None,
    generation: dict[str, Any] | None = None,
    seed: int = 1234,
    out: Path | None = None,
    run_code: bool = False,
    as_json: bool = False,
) -> None:
    """Evaluate on tasks of the harness, separated by commas, for ``routelab evaluate --harness``.

    ``model_args`` are those of ``--model routelab``: ``host``, ``routing``, ``dtype``, ``batch_size``, ...
    """
    quiet()
    from routelab.evaluate.harness import RoutelabLM, evaluate_tasks

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    results = evaluate_tasks(
        RoutelabLM(**model_args),
        names,
        limit=limit,
        generation=generation,
        run_code=run_code,
        out=out,
        seed=seed,
    )
    if as_json:
        typer.echo(json.dumps(results, ensure_ascii=False))
        return
    from lm_eval.utils import make_table

    typer.echo(make_table(results))


def _print(to: Console, found: dict[str, Any]) -> None:
    from routelab.report.terminal import print_pairs

    title = f"{found['first']} − {found['second']}, on {found['host']['name']}"
    print_pairs(to, title, [(f"{each['task']} {each['metric']}", _said(each)) for each in found["tasks"]])
    differing = [(each["setting"], f"{each['first']} / {each['second']}") for each in found["settings"]]
    if differing:
        print_pairs(to, "they differ in", differing)


def _said(task: dict[str, Any]) -> str:
    """Return a comparison in a sentence: values, difference, its interval, what changed."""
    change = task["difference"]
    better = {"first": "the first is better", "second": "the second is better"}.get(task["verdict"], "undecided")
    interval = f"[{change['low']:+.4f}, {change['high']:+.4f}] over {change['covers']}"
    changed = "" if task["changed"] is None else f", {task['changed']} of {task['answers']} answers changed"
    return (
        f"{task['first']:.4f} − {task['second']:.4f} = {change['mean']:+.4f} {interval}: {better}; "
        f"{task['gained']} examples gained, {task['lost']} lost{changed}"
    )
