"""Commands around the evaluation harness: lm-eval, and the comparison of two results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelab.cli.common import console, quiet

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
    out: Annotated[Path | None, typer.Option(help="Write the comparison into this JSON file.")] = None,
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
    seed: int | None = None,
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
        **({} if seed is None else {"seed": seed}),
    )
    if as_json:
        typer.echo(json.dumps(results, ensure_ascii=False))
        return
    from lm_eval.utils import make_table

    typer.echo(make_table(results))


def _print(to: Console, found: dict[str, Any]) -> None:
    from routelab.report.tables import Table
    from routelab.report.terminal import print_pairs, print_table

    columns = ("task", "metric", "first", "second", "difference", "95% interval", "better", "changed")
    rows = []
    for each in found["tasks"]:
        change = each["difference"]
        changed = "-" if each["changed"] is None else f"{each['changed']} of {each['answers']}"
        interval = f"[{change['low']:+.4f}, {change['high']:+.4f}]"
        numbers = (f"{each['first']:.4f}", f"{each['second']:.4f}", f"{change['mean']:+.4f}", interval)
        rows.append((each["task"], each["metric"], *numbers, each["verdict"], changed))
    covers = {each["difference"]["covers"] for each in found["tasks"]}
    print_table(
        to,
        Table(
            title=f"{found['first']} − {found['second']} on {found['host']['name']}",
            columns=columns,
            rows=rows,
            note=f"intervals cover {', '.join(sorted(covers))}",
            text=frozenset({"task", "metric", "better"}),
        ),
    )
    if found["settings"]:
        pairs = [(each["setting"], f"{each['first']} / {each['second']}") for each in found["settings"]]
        print_pairs(to, "settings that differ", pairs)
