"""Commands around the evaluation harness: lm-eval, and the comparison of two results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from routelab.cli.common import console, quiet
from routelab.cli.kinds import write_result


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
