"""What a recipe says it reproduces and what a run of it needs; it changes nothing of the run."""

from __future__ import annotations

from pathlib import Path

from pydantic.dataclasses import dataclass

from routelab.errors import RecipeError
from routelab.recipe.reading import CHECKED, build, read, read_text
from routelab.recipe.shipped import recipe_path

KEY = "needs"


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Needs:
    """``reproduces``: whose result; ``memory``, ``data`` and ``time``: of a run, and whether that is an estimate of
    ``--dry-run`` or was measured."""

    reproduces: str = ""
    memory: str = ""
    data: str = ""
    time: str = ""


def recipe_needs(name: str | Path) -> Needs:
    """Return what a recipe, a file or a shipped one by name, says of itself under ``needs``; empty where it does not.

    Raises ``RecipeError`` naming the file for a key that is unknown.
    """
    path = recipe_path(name)
    values = read(read_text(path), str(path))
    if not isinstance(values, dict):
        raise RecipeError(f"{path} must hold a mapping of keys, not {type(values).__name__}")
    found: Needs = build(Needs, values.get(KEY, {}), str(name), KEY)
    return found
