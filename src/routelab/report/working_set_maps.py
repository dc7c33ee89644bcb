"""Working sets step by step: which key blocks the query blocks of one prompt may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from routelab.report.numbers import csv_text
from routelab.report.panel import Frame, Panel, grid
from routelab.report.studies_parts import tint, title
from routelab.report.theme import ARMS, RULE, VARIABLES

#: Shares are drawn in this many tints.
_LEVELS = 8
_COLUMNS = 4


def maps_panel(maps: Mapping[str, Any], depth: int) -> Panel:
    """Return the drawing of ``maps["shares"]`` ``[T][query block][key block ≤ query block]``.

    A share is that of all heads of all core blocks that keep a block. The page steps through them; ``depth`` is the
    step after which WISE freezes.
    """
    shares: Sequence[Sequence[Sequence[float]]] = maps["shares"]
    blocks = len(shares[0])
    figure, small = grid(len(shares), _COLUMNS, 1.15)
    for step, (axes, rows) in enumerate(zip(small, shares, strict=True), start=1):
        tint(axes, [[*row, *[0.0] * (blocks - len(row))] for row in rows], 1.0)
        axes.set(xticks=[], yticks=[], aspect="equal")
        title(axes, f"step {step}" + (", frozen" if step == depth else ""))
    caption = (
        f"The working set of a prompt of {maps['tokens']} tokens, step by step: a row is a block of "
        f"{maps['block_size']} queries, a column a block of keys; full colour where every head of every core block "
        f"keeps it. WISE freezes the set of step {depth}."
    )
    cells = (
        [step, query, key, share]
        for step, rows in enumerate(shares, start=1)
        for query, row in enumerate(rows)
        for key, share in enumerate(row)
    )
    frames = [Frame(_label(step, len(shares), depth), _drawn(rows)) for step, rows in enumerate(shares, start=1)]
    data = csv_text(["step", "query block", "key block", "share of heads"], cells)
    return Panel("working-set-maps", caption, figure, data, frames, first=min(depth, len(frames)) - 1)


def _label(step: int, of: int, depth: int) -> str:
    return f"step {step} of {of}" + (", where WISE freezes it" if step == depth else "")


def _drawn(rows: Sequence[Sequence[float]]) -> str:
    """Return one step as SVG: cells of equal tint are one path."""
    levels: dict[int, list[str]] = {}
    for query, row in enumerate(rows):
        for key, share in enumerate(row):
            levels.setdefault(round(_LEVELS * share), []).append(f"M{key} {query}h1v1h-1z")
    size, (fill, rule) = (len(rows), (f"var(--{VARIABLES[colour][0]})" for colour in (ARMS[0], RULE)))
    paths = "".join(
        f'<path d="{"".join(cells)}" fill="{fill}" fill-opacity="{level / _LEVELS:g}"/>'
        for level, cells in sorted(levels.items())
        if level
    )
    frame = f'<rect width="{size}" height="{size}" fill="none" stroke="{rule}" stroke-width="{size / 200:g}"/>'
    return (
        f'<svg aria-hidden="true" viewBox="0 0 {size} {size}" xmlns="http://www.w3.org/2000/svg">{frame}{paths}</svg>'
    )
