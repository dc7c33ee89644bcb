"""Tasks on a Ray cluster: one that is there, or one on this machine for the time of the call."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from routelab.errors import BackendError, MissingPackageError
from routelab.execution.tasks import RESTARTS, Outcome, Task, attempt


def require_ray() -> None:
    """Raise ``MissingPackageError`` where Ray is not installed."""
    if find_spec("ray") is None:
        raise MissingPackageError("backend 'ray' needs Ray: pip install 'routelab[ray]', or use backend 'local'")


def ray_cluster(tasks: Sequence[Task], *, workers: int, threads: int) -> Iterator[Outcome]:
    """Run tasks on Ray, ``workers`` at a time. A task whose worker was killed is started again, a few times.

    Files are shared by path: on several machines, directories must be on a common file system.

    Raises:
        MissingPackageError: Ray is not installed. BackendError: it does not start.
    """
    require_ray()
    import ray

    ours = not ray.is_initialized()
    if ours:
        _start(workers)
    try:
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RESTARTS)(_call)
        variables = {name: value for name, value in os.environ.items() if name.startswith(("ROUTELAB_", "HF_"))}
        waiting = list(tasks)
        running: dict[Any, Task] = {}
        while waiting or running:
            while waiting and len(running) < workers:
                task = waiting.pop(0)
                reference = remote.remote(task.function, task.arguments, Path.cwd(), variables, threads)
                running[reference] = task
            done, _ = ray.wait(list(running))
            for reference in done:
                task = running.pop(reference)
                try:
                    value, error = ray.get(reference)
                except ray.exceptions.RayError as failure:
                    value, error = None, f"{type(failure).__name__}: {failure}"
                yield Outcome(task.name, value, error)
    finally:
        if ours:
            ray.shutdown()


def _start(workers: int) -> None:
    """Join the cluster that ``RAY_ADDRESS`` names, or start one of ``workers`` CPUs here.

    Ray gives its own processes half a minute to start, which a busy machine may not keep: hence the further attempts.
    """
    import ray

    address = os.environ.get("RAY_ADDRESS", "local")
    size: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if address == "local" else {}
    for attempts_left in range(RESTARTS, -1, -1):
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **size)
            return
        except Exception as error:  # Ray raises this very class
            ray.shutdown()
            if not attempts_left:
                raise BackendError(
                    f"Ray did not start at {address!r}: {error}; backend 'local' needs no Ray"
                ) from error


def _call(
    function: Callable[..., Any], arguments: tuple[Any, ...], folder: Path, variables: Mapping[str, str], threads: int
) -> tuple[Any, str | None]:
    """Make a call as the driver would: in its directory, with its settings."""
    import torch

    torch.set_num_threads(threads)
    os.environ.update(variables)
    os.chdir(folder)
    return attempt(function, arguments)
