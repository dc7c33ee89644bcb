"""What the finished seeds of a sweep say together: the numbers of one run that has them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from routelab.errors import TrainingError
from routelab.recipe import Recipe
from routelab.results import collect
from routelab.rundir import RunDirectory
from routelab.sweeps.cells import Cell
from routelab.sweeps.finished import finished, require_one_origin
from routelab.sweeps.run import folder_of

#: Of the results of a run, what those of its seeds are as well.
_KEPT = ("host", "control", "seeds", "tasks", "base", "arms", "comparisons", "alignment", "same_batches")


@dataclass(frozen=True)
class SeedRuns(RunDirectory):
    """The run directories of single seeds as the run directory that one run of all of them would have written.

    ``path`` is the sweep's folder, ``cells`` the folder of every seed. The host's records are those of the first.
    """

    cells: Mapping[int, Path]

    def routing(self, arm: str, seed: int) -> Path:
        return self._of(seed).routing(arm, seed)

    def checkpoints(self, arm: str, seed: int) -> Path:
        return self._of(seed).checkpoints(arm, seed)

    def records(self, arm: str, seed: int | None) -> Path:
        return self._of(next(iter(self.cells)) if seed is None else seed).records(arm, seed)

    def _of(self, seed: int) -> RunDirectory:
        return RunDirectory(self.cells[seed])


def collect_seeds(recipe: Recipe, cells: Sequence[Cell], folder: Path, failed: Mapping[str, str]) -> dict[str, Any]:
    """Return every number of a sweep's finished seeds as plain data, those that one run of these seeds has in its
    ``results.json``: ``arms``, each with its scores, mean and sd by task, and ``comparisons``, the paired difference of
    every arm from the control over examples and seeds. ``failed`` and ``planned`` say what is missing.

    Raises:
        TrainingError: no seed is finished; the message has the first error.
        EvaluationError: the seeds were run on different hosts or data.
    """
    done = finished(cells, folder, failed)
    if not done:
        why = next((f"{name}: {error}" for name, error in failed.items()), "run them with --resume")
        raise TrainingError(f"no seed of the sweep is finished: {why}")
    require_one_origin(done, folder)
    runs = {cell.recipe.seeds[0]: folder_of(folder, cell.name) for cell in done}
    found = collect(replace(recipe, seeds=tuple(runs), studies=(), harness=None), SeedRuns(folder, runs))
    return {
        "sweep": "seeds",
        "recipe": recipe.name,
        **{key: found[key] for key in _KEPT},
        "failed": [{"cell": name, "error": error} for name, error in failed.items()],
        "planned": len(cells),
    }
