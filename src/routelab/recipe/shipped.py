"""Where recipes and host configurations lie: files given by path, and those that come with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from routelab.errors import RecipeError, closest


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes of the package by name, such as ``mini/aar``."""
    root = Path(str(resources.files("routelab"))) / "recipes"
    return {str(path.relative_to(root).with_suffix("")): path for path in sorted(root.rglob("*.yaml"))}


def recipe_path(name: str | Path) -> Path:
    """Return the file of a recipe given as a path or as the name of a shipped one."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if str(name) in shipped:
        return shipped[str(name)]
    raise RecipeError(f"no recipe file and no shipped recipe is called {str(name)!r}{closest(str(name), shipped)}")


def host_config_path(name: str) -> Path:
    """Return the JSON file that ``host.config`` names: a path, or a configuration shipped with the package."""
    path = Path(name)
    if path.is_file():
        return path
    root = Path(str(resources.files("routelab"))) / "recipes" / "paper" / "hosts"
    shipped = {file.stem: file for file in root.glob("*.json")}
    if name in shipped:
        return shipped[name]
    raise RecipeError(f"host.config: no file and no shipped configuration is called {name!r}{closest(name, shipped)}")
