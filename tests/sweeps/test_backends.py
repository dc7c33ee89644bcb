"""A sweep on Ray gives what the same sweep gives in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from routelab.execution import executor
from routelab.recipe import Recipe, parse_recipe
from routelab.sweeps.cells import depth_cells
from routelab.sweeps.collect import collect_sweep
from routelab.sweeps.run import by_workers, one_by_one, run_sweep


def test_ray_equals_local(host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'routelab[ray]'")
    values = {
        "name": "tiny",
        "host": {"name": str(host), "dtype": "float32"},
        "arms": {
            "aar": [{"method": "aar", "layers": "all", "window": 4}],
            "routing-only": [{"method": "routing_only"}],
        },
        "control": "routing-only",
        "seeds": [0],
        "data": [{"source": "mini-arithmetic", "limit": 6}],
        "train": {"steps": 2, "batch_size": 2, "max_length": 128, "learning_rate": 0.05},
        "evaluate": [{"task": "mini-facts", "limit": 6}],
    }
    recipe = parse_recipe(values, "tiny")
    assert isinstance(recipe, Recipe)
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
