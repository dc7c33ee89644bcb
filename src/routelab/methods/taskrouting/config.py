"""Configuration of task-expert routing. Imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routelab.errors import ConfigError
from routelab.methods.base_config import is_int, is_number, require

ROUTING = ("token", "sequence")


@dataclass(frozen=True)
class TaskRoutingConfig:
    """Task-expert routing on a mixture of experts (arXiv 2606.14398, sections 6.2 and 8.2).

    Training minimises ``CE + task_router · L_task + load_balance · L_LB``, the two losses averaged over ``layers``.

    Attributes:
        tasks: names of the tasks; a label is a name's place in this list. Needed by the task-router loss.
        task_router: coefficient of the loss that draws a token's router logits to its task's experts.
        load_balance: coefficient of the load-balancing loss.
        experts: the experts of every task, in the order of ``tasks``: numbers, or lists of numbers. None gives task *t*
            the ``experts_per_task`` neighbours from ``t · experts_per_task`` on, modulo the number of experts.
        experts_per_task: None means as many as a token visits, which is the paper's ``t mod E`` on a top-1 host.
        layers: MoE layers on which the losses, and sequence routing, act; None means all.
        routing: ``"token"``, every token routed by its own state, or ``"sequence"``, every token of a sequence by the
            mean state of its prompt.
    """

    tasks: Sequence[str] = ()
    task_router: float = 1.0
    load_balance: float = 0.0
    experts: Sequence[int | Sequence[int]] | None = None
    experts_per_task: int | None = None
    layers: Sequence[int] | None = None
    routing: str = "token"

    def __post_init__(self) -> None:
        for name in ("task_router", "load_balance"):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"{name} must be a finite number of at least 0, not {value!r}")
        require(self.routing in ROUTING, f"routing {self.routing!r} is none of {', '.join(ROUTING)}")
        require(
            bool(self.task_router or self.load_balance or self.routing == "sequence"),
            "task_router and load_balance are both 0 and routing is 'token': that is routing_only",
        )
        self._check_tasks()
        require(
            self.experts_per_task is None or (is_int(self.experts_per_task) and self.experts_per_task >= 1),
            f"experts_per_task must be an integer of at least 1 or null, not {self.experts_per_task!r}",
        )
        if self.experts is not None:
            require(self.experts_per_task is None, "experts names every task's experts; leave experts_per_task out")
            object.__setattr__(self, "experts", self._checked_experts(self.experts))
        if self.layers is not None:
            require(
                _is_list(self.layers) and bool(self.layers) and all(is_int(index) for index in self.layers),
                f"layers must be a list of layer indices or null, not {self.layers!r}",
            )
            object.__setattr__(self, "layers", tuple(sorted(set(self.layers))))

    @property
    def groups(self) -> tuple[tuple[int, ...], ...] | None:
        """``experts`` with every entry as a group."""
        return None if self.experts is None else self._checked_experts(self.experts)

    def _check_tasks(self) -> None:
        require(
            _is_list(self.tasks) and all(isinstance(task, str) and task for task in self.tasks),
            f"tasks must be a list of names, not {self.tasks!r}",
        )
        twice = sorted({task for task in self.tasks if list(self.tasks).count(task) > 1})
        require(not twice, f"tasks names {', '.join(twice)} twice")
        require(
            bool(self.tasks) or not self.task_router,
            "task_router needs tasks, the names that the rows' labels may have; or set it to 0",
        )
        object.__setattr__(self, "tasks", tuple(self.tasks))

    def _checked_experts(self, experts: Sequence[int | Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        require(_is_list(experts), f"experts must be a list with an entry for every task, not {experts!r}")
        groups: list[tuple[int, ...]] = []
        for number, entry in enumerate(experts):
            group: tuple[Any, ...] = tuple(entry) if isinstance(entry, Sequence) else (entry,)
            if not group or not all(is_int(expert) and expert >= 0 for expert in group) or len(set(group)) < len(group):
                raise ConfigError(
                    f"experts.{number} must be an expert's number or a list of different ones, not {entry!r}"
                )
            groups.append(group)
        require(
            len(groups) >= len(self.tasks),
            f"there are {len(self.tasks)} tasks and experts for {len(groups)}: {', '.join(self.tasks[len(groups) :])} "
            "would have none",
        )
        require(len(groups) == len(self.tasks), f"experts has {len(groups)} entries for {len(self.tasks)} tasks")
        return tuple(groups)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
