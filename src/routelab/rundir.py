"""The run directory: where each output of a run lies, what is finished, and what may be continued.

    recipe.yaml  manifest.json  metrics.jsonl  results.json  report.html  figures/
    checkpoints/<arm>/seed-<s>/   routing/<arm>/seed-<s>/   records/<arm>/seed-<s>/<task>.jsonl
    records/base/<task>.jsonl   studies/<study>/   harness/<arm or base>/<task>/

Every file is written under a temporary name and renamed, so a file that exists is whole. A stage is finished when its
``.json`` summary exists; that file is written last. Of several processes only the first writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from routelab import processes
from routelab.errors import RecipeError
from routelab.recipe import AnyRecipe, first_difference, parse_recipe, read_text, recipe_values, recipe_yaml
from routelab.stored import json_lines

BASE = "base"
LOCK = ".lock"


@dataclass(frozen=True)
class RunDirectory:
    """The paths below one run's folder."""

    path: Path

    @classmethod
    def open(cls, path: Path, recipe: AnyRecipe, *, resume: bool) -> RunDirectory:
        """Create a run directory, or continue one.

        Raises ``RecipeError`` when the directory exists and ``resume`` is False, when it is no run directory, and
        when it holds a run of another recipe (naming the first key that differs), or when the system refuses it.
        """
        run = cls(path)
        try:
            processes.first_decides(lambda: run._enter(recipe, resume=resume))
        except OSError as error:
            raise RecipeError(
                f"{path} cannot be a run directory: {error.strerror}; choose another with --out"
            ) from error
        return run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands from running in this directory meanwhile; the system lets go when the process ends.

        Raises:
            RecipeError: another command is running in it.
        """
        lock = FileLock(self.path / LOCK, timeout=0)

        def take() -> None:
            try:
                lock.acquire()
            except Timeout as error:
                raise RecipeError(
                    f"another command is running in {self.path}; wait for it, or choose another with --out"
                ) from error

        processes.first_decides(take)
        try:
            yield
        finally:
            lock.release()

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.yaml"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    def routing(self, arm: str, seed: int) -> Path:
        """Where the trained routing of one arm and seed is saved."""
        return self.path / "routing" / arm / f"seed-{seed}"

    def checkpoints(self, arm: str, seed: int) -> Path:
        """Where the training of one arm and seed keeps what it needs to resume."""
        return self.path / "checkpoints" / arm / f"seed-{seed}"

    def records(self, arm: str, seed: int | None) -> Path:
        """Where the records of one arm and seed lie; ``seed`` is None for the host itself."""
        folder = self.path / "records" / arm
        return folder if seed is None else folder / f"seed-{seed}"

    def trained(self, arm: str, seed: int) -> Path:
        """The summary of a finished training."""
        return self.routing(arm, seed) / "train.json"

    def scored(self, arm: str, seed: int | None, task: str) -> Path:
        """The summary of a finished evaluation; its examples lie beside it with the suffix ``.jsonl``."""
        return self.records(arm, seed) / f"{task}.json"

    def chosen(self, arm: str, seed: int | None) -> Path:
        """The experts chosen on held-out text."""
        return self.records(arm, seed) / "experts.npz"

    def aligned(self, arm: str, seed: int | None) -> Path:
        """How tasks and experts belong together on held-out text."""
        return self.records(arm, seed) / "alignment.json"

    def study(self, name: str) -> Path:
        """A study of the trained routing: a folder like that of ``routelab study``."""
        return self.path / "studies" / name

    def harness(self, arm: str, task: str) -> Path:
        """What the evaluation harness found: the folder of one arm, or of the host, and task."""
        return self.path / "harness" / arm / task

    def write_metrics(self, pairs: Iterable[tuple[str, int]]) -> None:
        """Gather the training logs of all finished trainings in ``metrics.jsonl``."""
        rows = [
            {"arm": arm, "seed": seed, **row}
            for arm, seed in pairs
            for row in read_json(self.trained(arm, seed))["train"]["history"]
        ]
        write_text(self.metrics, "".join(json.dumps(row) + "\n" for row in rows))

    def _enter(self, recipe: AnyRecipe, *, resume: bool) -> None:
        path = self.path
        if path.exists() and any(path.iterdir()):
            if not self.recipe.is_file():
                raise RecipeError(f"{path} exists and is not a run directory; choose another with --out")
            if not resume:
                raise RecipeError(f"{path} already holds a run; continue it with --resume or choose another with --out")
            self._require_same(recipe)
        else:
            path.mkdir(parents=True, exist_ok=True)
            write_text(self.recipe, recipe_yaml(recipe))

    def _require_same(self, recipe: AnyRecipe) -> None:
        try:
            there = yaml.safe_load(read_text(self.recipe))
        except yaml.YAMLError as error:
            raise RecipeError(f"{self.recipe} is damaged; choose another directory with --out") from error
        # Keys that came with a later version are not in the file; they stand at their defaults.
        whole = recipe_values(parse_recipe(there, str(self.recipe))) if isinstance(there, dict) else there
        difference = first_difference(whole, recipe_values(recipe))
        if difference:
            raise RecipeError(f"{self.path} holds a run of another recipe: {difference}; choose another with --out")


def write_text(path: Path, text: str) -> None:
    """Write a text file through a temporary name."""
    if not processes.is_first():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file through a temporary name; numbers that are not finite are refused."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; raises ``RecipeError`` when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        advice = "if a run wrote it, delete it and continue the run with --resume"
        raise RecipeError(f"{path} is missing or damaged ({error}); {advice}") from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    return [json.loads(line) for line in json_lines(path.read_text(encoding="utf-8"))]
