"""Numbers as a report writes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
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


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; None is an empty cell."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in rows)
    return out.getvalue()


def clipped(text: str, most: int) -> str:
    """Return a text, or its beginning and an ellipsis where it has more than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
