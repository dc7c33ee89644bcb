"""Numbers from a model's outputs: generated answers, choices, losses, and how sure their differences are.

Everything is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routelab.evaluate.endpoint import ChatEndpoint
    from routelab.evaluate.equivalence import equivalent
    from routelab.evaluate.evaluation import evaluate, read_scores
    from routelab.evaluate.extract import Extracted, extract_answer
    from routelab.evaluate.generate import generate_answers
    from routelab.evaluate.judge import judge_answers
    from routelab.evaluate.leakage import measure_answers, measure_leakage, mode_gap, summarise_mode
    from routelab.evaluate.loss import text_loss
    from routelab.evaluate.stats import Interval, mean_sd, paired_bootstrap, paired_bootstrap_over_seeds
    from routelab.evaluate.tasks import Task, get_task

__all__ = [
    "ChatEndpoint",
    "Extracted",
    "Interval",
    "Task",
    "equivalent",
    "evaluate",
    "extract_answer",
    "generate_answers",
    "get_task",
    "judge_answers",
    "mean_sd",
    "measure_answers",
    "measure_leakage",
    "mode_gap",
    "paired_bootstrap",
    "paired_bootstrap_over_seeds",
    "read_scores",
    "summarise_mode",
    "text_loss",
]


def __getattr__(name: str) -> Any:
    homes = {
        "ChatEndpoint": "endpoint",
        "Extracted": "extract",
        "Interval": "stats",
        "Task": "tasks",
        "equivalent": "equivalence",
        "evaluate": "evaluation",
        "extract_answer": "extract",
        "generate_answers": "generate",
        "get_task": "tasks",
        "judge_answers": "judge",
        "mean_sd": "stats",
        "measure_answers": "leakage",
        "measure_leakage": "leakage",
        "mode_gap": "leakage",
        "paired_bootstrap": "stats",
        "paired_bootstrap_over_seeds": "stats",
        "read_scores": "evaluation",
        "summarise_mode": "leakage",
        "text_loss": "loss",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
