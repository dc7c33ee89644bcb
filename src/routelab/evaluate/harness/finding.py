"""Tasks by name: our files beside the harness's own, and errors that name the nearest one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lm_eval.tasks import TaskManager

from routelab.errors import EvaluationError

TASKS = Path(__file__).parent / "tasks"
PREFIX = "routelab_"


def task_manager(
    wanted: Sequence[str] | None = None,
    *,
    include_path: str | Path | Sequence[str | Path] | None = None,
    include_defaults: bool = True,
    metadata: dict[str, Any] | None = None,
) -> TaskManager:
    """Return a manager that knows our task files, those below ``include_path``, and the harness's own.

    Its own are some fifteen thousand files, read at every start; where each of the tasks ``wanted`` is one of ours or a
    file, they are left out.
    """
    given = [include_path] if isinstance(include_path, str | Path) else list(include_path or ())
    ours = wanted is not None and all(name.startswith(PREFIX) or name.endswith(".yaml") for name in wanted)
    return TaskManager(include_path=[TASKS, *given], include_defaults=include_defaults and not ours, metadata=metadata)


def unknown_tasks(missing: Iterable[str], manager: TaskManager) -> EvaluationError:
    """Return the error for tasks that ``manager`` does not have, with the nearest that it has."""
    told = []
    for name in missing:
        near = get_close_matches(name, manager.all_tasks, n=1, cutoff=0.5)
        told.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    shown = [name for name in local_names() if not name.startswith((f"{PREFIX}mmlu_", f"{PREFIX}bbh_"))]
    return EvaluationError(
        f"the harness has no task {', '.join(told)}; ours: {', '.join(shown)}, "
        f"{PREFIX}mmlu_<subject or area>, {PREFIX}bbh_<task>"
    )


def require_known(names: Sequence[str], manager: TaskManager) -> None:
    """Raise ``EvaluationError`` for a name, of a task, a group or a file, that ``manager`` does not have."""
    missing = [name for name in names if not name.endswith(".yaml") and name not in manager.all_tasks]
    if missing:
        raise unknown_tasks(missing, manager)


def check_tasks(names: Sequence[str], *, run_code: bool) -> None:
    """Check tasks by their files alone: no rows are read.

    Raises:
        EvaluationError: an unknown one (the nearest is named), or one that runs code, itself, without ``run_code``.
    """
    manager = task_manager(names)
    require_known(names, manager)
    unsafe = [name for name in names if (manager.task_index[name].cfg or {}).get("unsafe_code")]
    if unsafe and not run_code:
        raise EvaluationError(
            f"{', '.join(unsafe)} would run code that a model wrote; a recipe permits it by run_code: true"
        )


def local_names() -> list[str]:
    """Return the names of our tasks and groups, sorted."""
    manager = TaskManager(include_path=[TASKS], include_defaults=False)
    return sorted({*manager.all_subtasks, *manager.all_groups})
