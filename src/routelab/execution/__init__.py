"""Where independent tasks run: local processes or a Ray cluster, behind one interface."""

from routelab.execution.tasks import BACKENDS, Execute, Outcome, Task, executor

__all__ = ["BACKENDS", "Execute", "Outcome", "Task", "executor"]
