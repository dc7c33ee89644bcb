"""What training reports while it runs: one JSON line every so many steps."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from routelab import processes
from routelab.stored import json_lines
from routelab.train.plan import Plan

Log = dict[str, float | int]


class Recorder:
    """Keeps the loss of every step and writes ``metrics.jsonl``.

    A line holds: ``step``; ``loss``, the mean over the steps since the line before; where a method adds a loss of its
    own, ``router_loss``, that part likewise, which ``loss`` leaves out; ``learning_rate`` and ``grad_norm`` (before
    clipping) of the step; ``tokens`` seen so far; ``tokens_per_second`` since the line before; ``seconds`` of training
    so far; ``peak_memory_mb`` of the process (the first, of several), and of the GPU where there is one.

    Args:
        path: the file; lines after ``resume_from`` steps are dropped from it.
        every: steps between two lines.
        resumed: :meth:`progress` of the run that is continued.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        *,
        every: int,
        on_log: Callable[[Log], None] | None = None,
        resumed: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.plan, self.every, self.on_log = path, plan, every, on_log
        self.losses: list[float] = list(resumed["losses"]) if resumed else []
        self.router_losses: list[float] = list(resumed.get("router_losses", ())) if resumed else []
        self.history = _keep_lines(path, len(self.losses))
        self._before = float(resumed["seconds"]) if resumed else 0.0
        self._start = self._last_time = time.perf_counter()
        self._last_step = len(self.losses)

    def start(self) -> None:
        """Start the clock: the first step begins now."""
        self._start = self._last_time = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return self._before + time.perf_counter() - self._start

    def progress(self) -> dict[str, Any]:
        """Return what ``resumed`` takes."""
        return {"losses": self.losses, "router_losses": self.router_losses, "seconds": self.seconds}

    def record(self, *, loss: float, learning_rate: float, grad_norm: float, router_loss: float | None = None) -> None:
        """Take note of one finished step."""
        self.losses.append(loss)
        if router_loss is not None:
            self.router_losses.append(router_loss)
        step = len(self.losses)
        if step % self.every and step not in (1, self.plan.steps):
            return
        since = self.history[-1]["step"] if self.history else 0
        recent = self.losses[int(since) :]
        now, tokens = time.perf_counter(), self.plan.step_tokens
        new_tokens = tokens[step - 1] - (tokens[self._last_step - 1] if self._last_step else 0)
        line: Log = {
            "step": step,
            "loss": sum(recent) / len(recent),
            **({"router_loss": sum(own) / len(own)} if (own := self.router_losses[int(since) :]) else {}),
            "learning_rate": learning_rate,
            "grad_norm": grad_norm,
            "tokens": tokens[step - 1],
            "tokens_per_second": round(new_tokens / max(now - self._last_time, 1e-9), 1),
            "seconds": round(self.seconds, 3),
            **peak_memory(),
        }
        self._last_step, self._last_time = step, now
        self.history.append(line)
        if not processes.is_first():
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.on_log is not None:
            self.on_log(line)


def peak_memory() -> Log:
    """Return the most memory this process has held so far, in MiB, and the most on the GPU where there is one."""
    unit = 1 if sys.platform == "darwin" else 1024
    found: Log = {"peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20}
    if torch.cuda.is_available():
        found["peak_gpu_memory_mb"] = torch.cuda.max_memory_allocated() // 2**20
    return found


def _keep_lines(path: Path, steps: int) -> list[Log]:
    """Cut ``path`` back to its lines of the first ``steps`` steps and return them; a torn last line goes too."""
    kept = []
    for text in json_lines(path.read_text(encoding="utf-8")) if path.exists() else []:
        try:
            line = json.loads(text)
        except ValueError:
            break
        if line["step"] <= steps:
            kept.append(line)
    if not processes.is_first():
        return kept
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    os.replace(partial, path)
    return kept
