"""Routelab's models and local tasks in the lm-evaluation-harness (``pip install routelab[harness]``).

Everything is imported when it is first asked for: the harness is an optional package, and a slow import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from routelab.errors import MissingPackageError

if TYPE_CHECKING:
    from routelab.evaluate.harness.adapter import RoutelabLM
    from routelab.evaluate.harness.command import run_command
    from routelab.evaluate.harness.evaluating import evaluate_tasks
    from routelab.evaluate.harness.finding import check_tasks

__all__ = ["RoutelabLM", "check_tasks", "evaluate_tasks", "run_command"]


def __getattr__(name: str) -> Any:
    homes = {
        "RoutelabLM": "adapter",
        "check_tasks": "finding",
        "evaluate_tasks": "evaluating",
        "run_command": "command",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{homes[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "lm_eval":
            raise
        raise MissingPackageError(
            "the evaluation harness is not installed: pip install 'routelab[harness]' (or lm-eval)"
        ) from error
