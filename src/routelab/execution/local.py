"""Tasks in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from routelab.execution.tasks import RESTARTS, Outcome, Task, attempt


def local_processes(tasks: Sequence[Task], *, workers: int, threads: int) -> Iterator[Outcome]:
    """Run tasks in fresh processes, ``workers`` at a time; they end with this one.

    A worker that is killed takes its pool with it, and the pool does not tell which task it was. So a new pool gets
    all that are not finished, a few times.
    """
    todo = list(tasks)
    for restart in range(RESTARTS + 1):
        broken: BrokenProcessPool | None = None
        left: list[Task] = []
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(threads,))
        try:
            futures: dict[Future[tuple[Any, str | None]], Task] = {}
            for task in todo:
                try:
                    futures[pool.submit(attempt, task.function, task.arguments)] = task
                except BrokenProcessPool as error:
                    broken, left = error, [*left, task]
            for future in as_completed(futures):
                try:
                    value, failure = future.result()
                except BrokenProcessPool as error:
                    broken, left = error, [*left, futures[future]]
                    continue
                yield Outcome(futures[future].name, value, failure)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if broken is None:
            return
        todo = [task for task in todo if task in left]
        if restart == RESTARTS:
            for task in todo:
                yield Outcome(task.name, error=f"{type(broken).__name__}: {broken}")


def _start_worker(threads: int) -> None:
    """Compute in so many threads, and end with the parent, which may be killed without a word to its workers."""
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
