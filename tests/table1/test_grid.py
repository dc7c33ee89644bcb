"""The grid: order, failures, resumption, killed workers."""

from __future__ import annotations

import io
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from routelab.errors import ConfigError, RecipeError
from routelab.execution.tasks import RESTARTS
from routelab.table1.grid import run_grid
from routelab.table1.spec import CellSpec

GOOD = CellSpec(2, 2, source="fictional", pairs=10, hidden_size=16, num_heads=2, neurons=8, epochs=1)
BAD = replace(GOOD, source="relations", tasks=3)


def test_one_failed_cell_does_not_lose_the_rest(tmp_path: Path) -> None:
    text = io.StringIO()
    found = run_grid([BAD, GOOD], 1, None, tmp_path, console=Console(file=text))
    assert [cell["name"] for cell in found["cells"]] == [GOOD.name]
    (failed,) = found["failed"]
    assert failed["cell"] == BAD.name
    assert "DataError: source 'relations' needs ROUTELAB_DATA" in failed["error"]
    assert f"{GOOD.name}: accuracy" in text.getvalue()
    stamp = (tmp_path / f"{GOOD.name}.json").stat().st_mtime_ns
    again = run_grid([GOOD], 1, None, tmp_path, console=Console(file=io.StringIO()))
    assert again["cells"] == found["cells"]
    assert (tmp_path / f"{GOOD.name}.json").stat().st_mtime_ns == stamp
    with pytest.raises(RecipeError, match="was run with neurons 8"):
        run_grid([BAD, replace(GOOD, neurons=9)], 1, None, tmp_path)
    with pytest.raises(RecipeError, match="finished cell"):
        run_grid([GOOD], 1, None, tmp_path, resume=False)


class Pool:
    """An executor in this process whose first worker dies ``deaths`` times."""

    deaths = 0

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, attempt: object, function: object, arguments: tuple[CellSpec, ...]) -> Future:
        future: Future = Future()
        if Pool.deaths > 0:
            Pool.deaths -= 1
            future.set_exception(BrokenProcessPool("a worker was killed"))
        else:
            future.set_result(({"name": arguments[0].name, "accuracy": 1.0, "seconds": 0.0}, None))
        return future

    def shutdown(self, **_: object) -> None: ...


@pytest.mark.parametrize(("deaths", "left"), [(1, 0), (RESTARTS, 0), (RESTARTS + 1, 1)])
def test_a_killed_worker_starts_its_cells_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaths: int, left: int
) -> None:
    monkeypatch.setattr("routelab.execution.local.ProcessPoolExecutor", Pool)
    monkeypatch.setattr(Pool, "deaths", deaths)
    found = run_grid([GOOD], 1, None, tmp_path, console=Console(file=io.StringIO()))
    assert (len(found["cells"]), len(found["failed"])) == (1 - left, left)
    assert all("BrokenProcessPool" in each["error"] for each in found["failed"])


def test_progress_has_time_left_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("routelab.execution.local.ProcessPoolExecutor", Pool)
    text = io.StringIO()
    run_grid([GOOD, BAD], 1, None, tmp_path, console=Console(file=text, force_terminal=True, width=120))
    assert "2 of 2 cells" in text.getvalue()
    assert "left" in text.getvalue()


def test_an_empty_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a cell and a worker at least"):
        run_grid([], 2, None, tmp_path)
