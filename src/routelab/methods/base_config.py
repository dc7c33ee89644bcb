"""Checks that all configurations share. Imports neither torch nor transformers: recipes read configs cold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from routelab.errors import ConfigError, closest

Config = TypeVar("Config")


def require(condition: bool, message: str) -> None:
    """Raise ConfigError with ``message`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(message)


def is_int(value: object) -> bool:
    """Whether ``value`` is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite real number and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def config_from(cls: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Build a configuration from JSON or YAML values; an unknown key is refused with the nearest known one."""
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{closest(key, known)}")
    return cls(**values)
