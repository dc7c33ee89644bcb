"""A sweep on Ray gives what the same sweep gives in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from routelab.execution import executor
from routelab.recipe import Recipe
from routelab.sweeps.cells import depth_cells
from routelab.sweeps.collect import collect_sweep
from routelab.sweeps.run import by_workers, one_by_one, run_sweep


def test_ray_equals_local(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'routelab[ray]'")
    cells = depth_cells(recipe, [0, 1], starts=[1], singles=[])
    found = []
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    for name, execute in (("here", one_by_one), ("ray", by_workers(executor("ray", 1, threads)))):
        said: list[str] = []
        failed = run_sweep(cells, Path(name), command="c", execute=execute, say=said.append)
        assert (failed, len(said)) == ({}, len(cells))
        found.append(collect_sweep("depth", recipe, cells, Path(name), failed))
    assert found[0] == found[1]
