"""Checked dataclasses back to plain values and YAML, and where two of them differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import yaml

from routelab.errors import ConfigError
from routelab.recipe.specs import MethodSpec


def recipe_values(recipe: Any) -> dict[str, Any]:
    """Return the resolved recipe as plain values, every default written out; ``parse_recipe`` gives it back."""
    return {field.name: _plain(getattr(recipe, field.name)) for field in dataclasses.fields(recipe)}


def recipe_yaml(recipe: Any) -> str:
    """Return the resolved recipe as YAML text."""
    return yaml.safe_dump(recipe_values(recipe), sort_keys=False, allow_unicode=True)


def first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """Return the first key path at which two plain recipes differ, with both values, or None when they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        pairs = [(key, old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new])]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = list(zip(map(str, range(len(old))), old, new, strict=True))
    else:
        return None if old == new else f"{path} ({old!r} there, {new!r} now)"
    found = (first_difference(a, b, f"{path}.{key}" if path else str(key)) for key, a, b in pairs)
    return next((difference for difference in found if difference), None)


def _plain(value: Any) -> Any:
    if isinstance(value, MethodSpec):
        return {"method": value.method, **_plain(value.config)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigError(f"a recipe holds plain values only, not {type(value).__name__}")
