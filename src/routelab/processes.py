"""The processes of one run: how many there are, which one this is, and what they tell each other.

``torchrun`` starts the same command several times. All processes train and evaluate together; the first alone writes
files and speaks. Whatever depends on files is therefore decided by the first and told to the others.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from routelab.errors import LaunchError, RoutelabError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
S = TypeVar("S")

#: How long a process waits for the others: the first may be drawing figures or looking inside a model meanwhile.
PATIENCE = timedelta(days=1)


def join() -> None:
    """Join the other processes of this run, if it was started with any: NCCL between GPUs, gloo between CPUs.

    Raises:
        LaunchError: a launcher was asked for several processes or for sharding, and would do something else.
    """
    check_launch()
    if asked() < 2 or count() > 1:
        return
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, timeout=PATIENCE)


def leave() -> None:
    """Leave the other processes, if :func:`join` joined any."""
    group = _group()
    if group is not None:
        group.destroy_process_group()


def check_launch() -> None:
    """Refuse what ``accelerate launch`` was asked for and silently leaves out.

    ``accelerate launch --cpu --num_processes 2`` prepares two processes (it sets ``MASTER_PORT``) and starts one, which
    would train alone. Its FSDP settings reach a training that replicates the model.

    Raises:
        LaunchError: either of them.
    """
    cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
    if cpu and "MASTER_PORT" in os.environ and "WORLD_SIZE" not in os.environ:
        raise LaunchError(
            "accelerate launch --cpu was asked for several processes and started this one alone; on CPUs use "
            "torchrun --nproc-per-node N -m routelab.cli run ..."
        )
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        raise LaunchError(
            "accelerate was asked for FSDP, and routelab's training replicates the model on every process: start it "
            "with torchrun, or shard the model yourself with routelab.train.sharding.shard (docs/scale.md)"
        )


def require_one(what: str) -> None:
    """Refuse to do ``what`` in one of several processes, each of which would do all of it.

    Raises:
        LaunchError: there are several.
    """
    if asked() > 1:
        raise LaunchError(f"{what} cannot be shared by {asked()} processes: start it without torchrun")


def asked() -> int:
    """Return the number of processes that the launcher started.

    Raises:
        LaunchError: ``WORLD_SIZE`` is not one, or stands alone: ``torchrun`` says ``RANK`` besides.
    """
    told = os.environ.get("WORLD_SIZE", "1")
    if not told.isdecimal() or int(told) < 1:
        raise LaunchError(f"the environment's WORLD_SIZE must be the number of processes, got {told!r}; unset it")
    if int(told) > 1 and not os.environ.get("RANK", "").isdecimal():
        raise LaunchError(
            f"the environment says WORLD_SIZE={told} and no RANK of this process; start with torchrun, or unset it"
        )
    return int(told)


def count() -> int:
    """Return the number of processes that have joined; 1 before :func:`join`."""
    group = _group()
    return 1 if group is None else int(group.get_world_size())


def rank() -> int:
    """Return the number of this process, from 0."""
    group = _group()
    return 0 if group is None else int(group.get_rank())


def is_first() -> bool:
    """Whether this process is the one that writes files."""
    return rank() == 0


def first_decides(decide: Callable[[], T]) -> T:
    """Return what ``decide`` gives in the first process, to all of them; it is not called in the others.

    Whatever the first did before is done when the others go on. An error of Routelab's or of the system that ``decide``
    raises is raised by all.
    """
    group = _group()
    if group is None:
        return decide()
    told: list[tuple[T | None, RoutelabError | OSError | None]] = [(None, None)]
    if is_first():
        try:
            told = [(decide(), None)]
        except (RoutelabError, OSError) as error:
            told = [(None, error)]
    group.broadcast_object_list(told, src=0)
    value, failure = told[0]
    if failure is not None:
        raise failure
    return value  # type: ignore[return-value]


def share_out(items: Sequence[S], work: Callable[[Sequence[S]], Sequence[T]], *, each: int = 1) -> list[T]:
    """Let every process work on a part of ``items``; return all results, in the order of the items, to all of them.

    Args:
        work: returns ``each`` results for every item that it is given, in their order.
    """
    group = _group()
    if group is None:
        return list(work(items))
    own = items[rank() :: count()]
    parts: list[Sequence[T]] = [()] * count()
    group.all_gather_object(parts, work(own) if own else [])
    found: list[T] = []
    for number in range(len(items)):
        at = number // count() * each
        found += parts[number % count()][at : at + each]
    return found


def add_up(values: Tensor) -> Tensor:
    """Return the sum of a CPU tensor over all processes; the tensor itself is left alone."""
    group = _group()
    if group is None:
        return values
    total = values.clone()
    group.all_reduce(total)
    return total


def _group() -> ModuleType | None:
    """Return ``torch.distributed`` where several processes have joined. Light commands never import torch for it."""
    group = sys.modules.get("torch.distributed")
    return group if group is not None and group.is_available() and group.is_initialized() else None
