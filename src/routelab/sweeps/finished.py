"""Which cells of a sweep count: those that are finished, all of them of one host and the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from routelab.errors import EvaluationError
from routelab.rundir import RunDirectory, read_json
from routelab.sweeps.cells import Cell
from routelab.sweeps.run import folder_of

_ORIGINS = ("host", "data")


def finished(cells: Sequence[Cell], folder: Path, failed: Mapping[str, str]) -> list[Cell]:
    """Return the cells that are finished. One that failed is not, even where its folder has results: these may be of
    another recipe."""
    return [
        cell
        for cell in cells
        if cell.name not in failed and RunDirectory(folder_of(folder, cell.name)).results.is_file()
    ]


def require_one_origin(cells: Sequence[Cell], folder: Path) -> None:
    """Refuse cells of which one was run on another host, or trained on other data, than the first.

    Files are compared by their hashes in ``manifest.json``; what is not in both manifests is not compared.

    Raises:
        EvaluationError: the two cells, and the file or data that differs.
    """
    if not cells:
        return
    first, *others = ((cell.name, read_json(RunDirectory(folder_of(folder, cell.name)).manifest)) for cell in cells)
    for name, manifest in others:
        for origin in _ORIGINS:
            ours, theirs = (dict(each.get(origin, {})) for each in (first[1], manifest))
            odd = sorted(key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key])
            if odd:
                raise EvaluationError(
                    f"the cells {first[0]} and {name} of {folder} have other {origin}: {odd[0]} was changed between "
                    "them; delete the cells of the one that is not meant and run the sweep with --resume"
                )
