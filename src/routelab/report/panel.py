"""What a drawing is: a figure in the house style with its caption, its data, and the files it is written to."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routelab.report.numbers import clipped
from routelab.report.theme import INK, MUTED, RULE, VARIABLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 4.6
_SCREEN_FONTS = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
#: Characters of a row's name that leave room for what is drawn.
_ROW = 40
#: Dots an inch of PNGs, and of the maps in SVGs that are pixels.
_DPI = 200
#: Inches from which a drawing is tall, and coarser as PNG.
_TALL = 8.0
#: Characters of a legend that fit beside each other, the mark before each label being worth six.
_LEGEND = 66


@dataclass(frozen=True)
class Frame:
    """One step of a drawing that moves: what it is called, and its SVG, which names colours of the page alone."""

    label: str
    svg: str


@dataclass(frozen=True)
class Panel:
    """One drawing: the file stem, what it shows in words (the caption and the alternative text), the figure, and its
    data as CSV. With ``frames`` the page steps through these, beginning at ``first``; the figure shows them side by
    side."""

    stem: str
    caption: str
    figure: Figure
    data: str
    frames: Sequence[Frame] = ()
    first: int = 0

    def svg(self) -> str:
        """Return the drawing as an SVG that uses the page's fonts and CSS variables instead of fixed colours."""
        text = self._svg.decode()
        text = text[text.index("<svg") :]
        for colour, (variable, _) in VARIABLES.items():
            text = text.replace(colour, f"var(--{variable})")
        return text.replace("'DejaVu Sans', sans-serif", _SCREEN_FONTS).replace("<svg ", '<svg aria-hidden="true" ', 1)

    def write(self, folder: Path) -> list[Path]:
        """Write ``stem.png``, ``stem.svg`` and ``stem.csv`` into ``folder``, each through a temporary name."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for kind, content in (("png", self._render("png")), ("svg", self._svg), ("csv", self.data.encode())):
            path = folder / f"{self.stem}.{kind}"
            temporary = path.with_name(path.name + ".tmp")
            temporary.write_bytes(content)
            os.replace(temporary, path)
            written.append(path)
        return written

    @cached_property
    def _svg(self) -> bytes:
        return self._render("svg")

    def _render(self, kind: str) -> bytes:
        import matplotlib
        from matplotlib.text import Text

        # A name with dollar signs is a name, not mathematics.
        for text in self.figure.findobj(Text):
            text.set_parse_math(False)
        buffer = io.BytesIO()
        fixed: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": self.stem}
        with matplotlib.rc_context(fixed):
            if kind == "svg":
                self.figure.savefig(buffer, format="svg", dpi=_DPI, transparent=True, metadata={"Date": None})
            else:
                fine = self.figure.get_figheight() < _TALL
                self.figure.savefig(buffer, format="png", dpi=_DPI if fine else 120, facecolor="white")
        self.figure.set_layout_engine("none")  # laid out by now: it takes longer than the drawing
        return buffer.getvalue()


def canvas(height: float) -> tuple[Figure, Axes]:
    """Return an empty drawing in the house style, one column wide."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[str, Any] = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.edgecolor": RULE,
        "axes.labelcolor": MUTED,
        "axes.labelsize": 8.5,
        "xtick.color": RULE,
        "ytick.color": RULE,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "text.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
    axes.grid(axis="x" if height < 2.6 else "y", color=RULE, lw=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def grid(count: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a drawing of ``count`` small axes in the house style, ``columns`` a row, each ``height`` high."""
    rows = -(-count // columns)
    figure, first = canvas(0.3 + height * rows)
    first.remove()
    cells = figure.add_gridspec(rows, columns)
    found = []
    for number in range(count):
        axes = figure.add_subplot(cells[number // columns, number % columns])
        dress(axes)
        found.append(axes)
    return figure, found


def dress(axes: Axes) -> None:
    """Give axes that were not made by ``canvas`` the house style."""
    axes.tick_params(color=RULE, labelcolor=MUTED, labelsize=8)
    for name, side in axes.spines.items():
        side.set(color=RULE, visible=name in ("left", "bottom"))
    axes.grid(axis="y", color=RULE, lw=0.6)
    axes.set_axisbelow(True)


def legend(axes: Axes) -> None:
    """Name the lines above the drawing, where they cover nothing, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    widest = max(map(len, labels), default=1)
    axes.figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=max(1, min(len(labels), _LEGEND // (widest + 6))),
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handlelength=1.5,
    )


def row_labels(axes: Axes, names: Sequence[str], colours: Mapping[str, str]) -> None:
    """Name the rows of a drawing with one row per arm, first row on top, in the arms' colours."""
    from matplotlib.ticker import MaxNLocator

    axes.set_yticks(range(len(names)), [clipped(name, _ROW) for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.set_label_coords(-0.1, 0.5)  # there is no label, and to place none every row would be measured
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set(color=colours[name], fontsize=9.5, fontweight="bold")
