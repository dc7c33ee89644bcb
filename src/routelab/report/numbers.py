"""Numbers as a report writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any


def spread(values: Sequence[float], digits: int, unit: str = "") -> str:
    """Return the mean of values over seeds, with their standard deviation where there are several; a dash for none."""
    if not values:
        return "–"
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{unit}{around}"


def interval(found: Mapping[str, Any], scale: float, digits: int) -> str:
    """Return a mean with its interval, signed."""
    mid, low, high = (scale * found[key] for key in ("mean", "low", "high"))
    return f"{mid:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})".replace("-", "−")
