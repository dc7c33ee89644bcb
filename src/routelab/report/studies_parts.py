"""What the pages of all studies are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routelab.report.panel import Panel
from routelab.report.tables import Table
from routelab.report.theme import ARMS, INK, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Found = Mapping[str, Any]

#: Cells up to which a matrix is drawn as paths, which follow a dark page; each takes some 300 bytes, a pixel a few.
_PATHS = 400
#: Columns that pixels can tell apart; of more, neighbours are drawn as one.
_PIXELS = 1024


@dataclass(frozen=True)
class Shown:
    """What a study shows: the sentence above it, what to know when reading it, drawings and tables."""

    claim: str
    note: str
    panels: Sequence[Panel]
    tables: Sequence[Table]


def whole_numbers(axes: Axes, most: int = 6) -> None:
    """Let the horizontal axis count, in about ``most`` steps."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(most, integer=True))


def tint(axes: Axes, values: Sequence[Sequence[float]], largest: float | None = None) -> float:
    """Draw a matrix as tints from clear to full, so that the page's ground shows through: blue above 0, orange below.
    Columns too many for the eye are drawn in groups, each as its strongest.

    Returns the value of full colour.
    """
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    matrix = np.asarray(values, dtype=float)
    full = float(np.abs(matrix).max()) if largest is None else largest
    joined = range(0, matrix.shape[1], -(-matrix.shape[1] // _PIXELS))
    for sign, colour in ((1, ARMS[0]), (-1, ARMS[1])):
        part = np.ma.masked_less_equal(sign * matrix, 0)
        if part.count():
            colours = LinearSegmentedColormap.from_list("tint", [(*to_rgb(colour), 0.0), (*to_rgb(colour), 1.0)])
            shown: dict[str, Any] = {"cmap": colours, "vmin": 0, "vmax": full or 1.0}
            if matrix.size <= _PATHS:
                axes.pcolormesh(part, **shown)
            else:
                place = (0, matrix.shape[1], len(matrix), 0)
                strongest = np.maximum.reduceat(part.filled(0), joined, axis=1)
                axes.imshow(strongest, aspect="auto", interpolation="none", extent=place, **shown)
    axes.set_ylim(len(matrix), 0)
    axes.set_xlim(0, matrix.shape[1])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set(visible=True, color=RULE)
    return full


def ticks_between(axes: Axes, rows: Sequence[object], columns: Sequence[object], most: int = 16) -> None:
    """Name the rows and columns of a matrix, each in its middle; of more than ``most`` only some."""
    for names, place in ((rows, axes.set_yticks), (columns, axes.set_xticks)):
        shown = some_of(len(names), most)
        place([i + 0.5 for i in shown], [str(names[i]) for i in shown])


def some_of(count: int, most: int = 16) -> range:
    """Return the places of evenly spaced names, of which there is room for ``most``."""
    return range(0, count, max(1, -(-count // most)))


def title(axes: Axes, text: str) -> None:
    """Head small axes."""
    axes.set_title(text, loc="left", fontsize=8.5, color=INK, pad=3)


def signed(value: float, digits: int) -> str:
    """Return a signed number with a true minus sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage, a dash for none."""
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def spanned(values: Iterable[int]) -> str:
    """Return what numbers range over: ``4``, or ``3 to 7``."""
    known = sorted(set(values))
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
