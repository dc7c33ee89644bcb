"""The folder of a sweep: a new one, or one of the same sweep, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from routelab.errors import RecipeError
from routelab.rundir import read_json


def claim_sweep(folder: Path, kind: str, *, resume: bool) -> Path:
    """Make the folder of a sweep of ``kind``, or find it as this kind left it, and return it.

    Raises:
        RecipeError: it is no directory, cannot be made or written into, holds anything and ``resume`` is False, or
            holds something else than this sweep.
    """
    if folder.exists() and not folder.is_dir():
        raise RecipeError(f"{folder} is a file and cannot hold a sweep; choose a directory with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = any(folder.iterdir())
    except OSError as error:
        raise RecipeError(f"{folder} cannot hold a sweep: {error.strerror}; choose another with --out") from error
    if not os.access(folder, os.W_OK):
        raise RecipeError(f"{folder} cannot be written into; choose another with --out")
    if held:
        _require_same(folder, kind, resume=resume)
    return folder


def _require_same(folder: Path, kind: str, *, resume: bool) -> None:
    if not resume:
        raise RecipeError(
            f"{folder} already holds something; continue a sweep with --resume or choose another with --out"
        )
    results = folder / "results.json"
    if results.is_file():
        found = read_json(results)
        there = found.get("study", found.get("kind", "training")) if isinstance(found, dict) else "unknown"
        if there != kind:
            raise RecipeError(f"{folder} holds results of {there!r}, not of {kind!r}; choose another with --out")
    elif (folder / "recipe.yaml").exists() or not (folder / "cells").is_dir():
        raise RecipeError(f"{folder} holds something else than a sweep; choose another with --out")
