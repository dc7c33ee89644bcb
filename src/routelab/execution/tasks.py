"""Tasks, their outcomes, and the choice of what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from routelab.errors import BackendError, ConfigError, closest

BACKENDS = ("local", "ray")
#: How often what was running in a worker that was killed is started again before it counts as failed.
RESTARTS = 3


@dataclass(frozen=True)
class Task:
    """A call that another process can make: ``function`` is found by its module and name, ``arguments`` are pickled.

    It may be made again after its worker was killed, so it must keep what it has finished, and not mind finding it.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a task returned, or ``error``: what went wrong, with the name of its kind."""

    name: str
    value: Any = None
    error: str | None = None


#: Runs tasks, several at a time, and yields the outcome of each as it comes. A failed task does not stop the others.
Execute = Callable[[Sequence[Task]], Iterator[Outcome]]


def executor(backend: str, workers: int, threads: int) -> Execute:
    """Return what runs tasks on ``backend``, ``workers`` at a time, each computing in ``threads`` threads.

    ``local``: processes of this machine. ``ray``: the cluster that ``RAY_ADDRESS`` names, or one started on this
    machine for the time of the call; a task gets one GPU where the cluster has any.

    Raises:
        BackendError: an unknown backend. ConfigError: no workers or threads.
        MissingPackageError: Ray is asked for and not installed.
    """
    if workers < 1 or threads < 1:
        raise ConfigError(f"tasks need a worker and a thread at least, got {workers} and {threads}")
    if backend == "local":
        from routelab.execution.local import local_processes

        return partial(local_processes, workers=workers, threads=threads)
    if backend == "ray":
        from routelab.execution.ray_cluster import ray_cluster, require_ray

        require_ray()
        return partial(ray_cluster, workers=workers, threads=threads)
    raise BackendError(f"no backend is called {backend!r}{closest(backend, BACKENDS)}")


def attempt(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, str | None]:
    """Return what a call gives, or else what went wrong in it, as text: not every error survives pickling."""
    try:
        return function(*arguments), None
    except Exception as error:  # whatever it is, the other tasks go on
        return None, f"{type(error).__name__}: {error}"
