"""``routelab lm-eval``: the harness's own command line, with our model class and our task files known to it."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import lm_eval.tasks
import torch
from lm_eval._cli import HarnessCLI
from lm_eval.utils import setup_logging

import routelab.evaluate.harness.adapter  # noqa: F401 (registers --model routelab)
from routelab.errors import EvaluationError, RoutelabError
from routelab.evaluate.harness.finding import task_manager, unknown_tasks

MODEL = "routelab"


def run_command(arguments: Sequence[str]) -> None:
    """Run the harness's command line on ``arguments``; all of them are its own.

    Without ``--model`` and ``--config`` the model is ``routelab``, whose ``host=...`` also counts as
    ``pretrained=...``, after which the harness names the folder of its results. Our task files are found beside the
    harness's own and those of ``--include_path``.

    Raises:
        EvaluationError: an unknown task (the nearest is named), or a task that runs code without the confirmation.
        RoutelabError: whatever our model or our tasks refuse.
    """
    setup_logging()
    with _replaced(sys, "argv", ["lm-eval", *arguments]):
        cli = HarnessCLI()
        parsed = cli.parse_args()
    tasks = getattr(parsed, "tasks", None)
    wanted = tasks if isinstance(tasks, list) else None
    if parsed.command == "run":
        _complete(parsed)
    # It has no other door for a second folder of tasks: its own option takes one, and a user may have given that.
    with _replaced(lm_eval.tasks, "TaskManager", partial(task_manager, wanted)), _named_errors(wanted or ()):
        cli.execute(parsed)


def _complete(parsed: Namespace) -> None:
    if parsed.model is None and parsed.config is None:
        parsed.model = MODEL
    if parsed.device is None and parsed.config is None and not torch.cuda.is_available():
        parsed.device = "cpu"  # the harness would name cuda:0, as if it had been asked for
    given: dict[str, Any] = parsed.model_args or {}
    if parsed.model == MODEL and "host" in given and "pretrained" not in given:
        parsed.model_args = {"pretrained": given["host"], **{k: v for k, v in given.items() if k != "host"}}


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _named_errors(wanted: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except RoutelabError:
        raise
    except ValueError as error:
        missing = re.fullmatch(r"Tasks not found: (.*)", str(error))
        if missing:
            raise unknown_tasks(missing[1].split(", "), task_manager(wanted)) from error
        raise named(error) from error


def named(error: ValueError) -> ValueError:
    """Return an error of the harness as one of ours, where it is one that a user makes."""
    unsafe = re.search(r"run task: (\S+) which is marked as unsafe", str(error))
    if unsafe:
        return EvaluationError(
            f"{unsafe[1]} runs code that a model wrote, in a process with limits on time and memory but as this user; "
            "confirm it: --confirm_run_unsafe_code"
        )
    return error
