"""YAML to checked dataclasses: every key and value that does not fit is refused with its file and path."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field, ValidationError

from routelab.errors import RecipeError, RoutelabError, closest

# Strict: YAML has types, so ``true`` is no number and ``1.0`` no count; only tuples are written as lists.
CHECKED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
TUPLE = Field(strict=False)
Scalar = str | int | float | bool | None
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class _Loader(yaml.SafeLoader):
    """YAML in which ``1e-3`` is a number, as everywhere else; YAML 1.1 reads it as text for want of a dot."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_text(path: Path) -> str:
    """Return the text of a recipe file; raises ``RecipeError`` when it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path} cannot be read as UTF-8 text: {error}") from error


def assignments(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Return ``key=value`` texts as a mapping, the values read as YAML; ``option`` is their name in errors.

    Raises ``RecipeError`` for a text without a key or without ``=``.
    """
    found = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.strip():
            raise RecipeError(f"{option} {pair!r}: write key=value")
        found[key.strip()] = read(text, f"{option} {pair!r}")
    return found


def apply_override(values: dict[str, Any], override: str) -> None:
    ((path, value),) = assignments([override], "--set").items()
    keys = path.split(".")
    node: Any = values
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(node, list):
            if not key.isdigit() or int(key) >= len(node):
                at = ".".join(keys[:depth])
                raise RecipeError(f"--set {override!r}: {at} has {len(node)} entries, numbered from 0; {key!r} is none")
            slot: Any = int(key)
        elif isinstance(node, dict):
            slot = key
            if not last:
                node.setdefault(key, {})
        else:
            raise RecipeError(f"--set {override!r}: {'.'.join(keys[:depth])} is a value and has no keys")
        if last:
            node[slot] = value
        else:
            node = node[slot]


def read(text: str, origin: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{origin} is not valid YAML: {' '.join(str(error).split())}") from error


def build(cls: type, values: Any, origin: str, where: str) -> Any:
    values = expect(dict, values, origin, where)
    refuse_unknown(cls, values, origin, where)
    try:
        return cls(**values)
    except ValidationError as error:
        raise RecipeError(f"{origin}: " + "; ".join(_sentences(error, where))) from error
    except RoutelabError as error:
        raise RecipeError(f"{origin}: {where}: {error}") from error


def _sentences(error: ValidationError, where: str) -> Iterable[str]:
    for item in error.errors(include_url=False):
        keys = [where, *map(str, item["loc"])]
        path = ".".join(key for key in keys if key)
        if item["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
            yield f"{path} is missing"
        else:
            given = "" if isinstance(item["input"], dict) else f" (given: {item['input']!r})"
            yield f"{path}: {item['msg'].removeprefix('Value error, ')}{given}"


def refuse_unknown(cls: type, values: Mapping[str, Any], origin: str, where: str) -> None:
    known = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            path = f"{where}.{key}" if where else str(key)
            raise RecipeError(f"{origin}: unknown key {path!r}{closest(str(key), known)}")


def expect(kind: type, value: Any, origin: str, where: str) -> Any:
    if not isinstance(value, kind):
        wanted = "a mapping of keys" if kind is dict else "a list"
        raise RecipeError(f"{origin}: {where or 'the recipe'} must be {wanted}, not {value!r}")
    return value
