"""What one cell of Table 1 is, as plain values with a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from routelab.errors import ConfigError, closest

SOURCES = ("auto", "relations", "fictional")
LOSSES = ("ce", "task_router", "load_balance")
GATES = ("probability", "hard")
ROUTINGS = ("token", "sequence")

#: Weight of the auxiliary loss. The paper gives none: 0.01 is from Switch, and 1 sets the task router beside CE.
COEFFICIENTS: Mapping[str, float] = {"ce": 0.0, "load_balance": 0.01, "task_router": 1.0}


@dataclass(frozen=True)
class CellSpec:
    """One cell: so many tasks and experts, a loss and a seed; and the settings that all cells of a table share.

    The seed decides the relations, their templates and pairs, the split, the initial weights, the order of training
    and where test sentences are cut. Cells that differ in loss or experts alone see the same data in the same order.

    Args:
        source: ``"relations"`` (BEAR and ParaRel), ``"fictional"``, or ``"auto"``: relations where the data is present.
        templates, pairs: of each task.
        neurons: of each expert, whatever their number.
        coefficient: weight of the auxiliary loss; None takes :data:`COEFFICIENTS`.
        hidden_size, num_heads, gate, routing: as in ``OneLayerConfig``.
        epochs, batch_size, learning_rate, embedding_scale, warmup: as in ``OneLayerTraining``.

    Raises:
        ConfigError: an unknown source, loss, gate or routing, a count below 1, an auxiliary loss for a single expert.
    """

    tasks: int
    experts: int
    loss: Literal["ce", "task_router", "load_balance"] = "ce"
    seed: int = 0
    source: Literal["auto", "relations", "fictional"] = "auto"
    templates: int = 3
    pairs: int = 200
    hidden_size: int = 128
    num_heads: int = 4
    neurons: int = 256
    gate: Literal["probability", "hard"] = "probability"
    routing: Literal["token", "sequence"] = "token"
    coefficient: float | None = None
    epochs: int = 6
    batch_size: int = 32
    learning_rate: float = 2e-3
    embedding_scale: float = 200.0
    warmup: float = 0.3

    def __post_init__(self) -> None:
        for name, known in (("loss", LOSSES), ("source", SOURCES), ("gate", GATES), ("routing", ROUTINGS)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(f"unknown {name} {value!r}{closest(value, known)}")
        for name in ("tasks", "experts", "templates", "pairs", "neurons"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.experts == 1 and self.loss != "ce":
            raise ConfigError(f"with one expert the loss {self.loss!r} is constant; that cell is loss='ce'")
        if self.coefficient is None:
            object.__setattr__(self, "coefficient", COEFFICIENTS[self.loss])

    @property
    def name(self) -> str:
        """The cell's name in tables, messages and file names."""
        variant = "".join(f"-{value}" for value in (self.gate, self.routing) if value not in ("probability", "token"))
        return f"tasks-{self.tasks}-experts-{self.experts}-{self.loss.replace('_', '-')}{variant}-seed-{self.seed}"

    @property
    def cost(self) -> float:
        """Relative time of the cell: sentences and vocabulary both grow with the tasks."""
        return self.epochs * self.templates * self.pairs**2 * self.tasks * (self.tasks + 5.0)

    def values(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)

    def digest(self) -> str:
        """Return the SHA-256 of the settings."""
        return hashlib.sha256(json.dumps(self.values(), sort_keys=True).encode()).hexdigest()


def grid(
    tasks: Sequence[int] = (10, 20, 30, 40),
    experts: Sequence[int] = (1, 3, 5, 7, 9),
    losses: Sequence[str] = LOSSES,
    seeds: Sequence[int] = (0, 1, 2),
    **settings: Any,
) -> list[CellSpec]:
    """Return the cells of a table in the order to run them: whole tables of one seed, the longest cells first.

    With one expert the three losses are one, so there is one cell, of the loss ``"ce"``.
    """
    cells = {
        CellSpec(count, number, loss if number > 1 else "ce", seed, **settings)  # type: ignore[arg-type]
        for count in tasks
        for number in experts
        for loss in losses
        for seed in seeds
    }
    order = {loss: index for index, loss in enumerate(LOSSES)}
    return sorted(cells, key=lambda cell: (cell.seed, -cell.cost, -cell.experts, order[cell.loss]))
