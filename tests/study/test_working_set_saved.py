"""Saved supports come back bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from routelab.errors import CheckpointError
from routelab.study.working_set_saved import load_supports, save_supports


def test_supports_come_back(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    supports = {
        name: torch.rand(2, 1, 3, 5, 5, generator=generator) < share for name, share in (("wise", 0.4), ("static", 0.9))
    }
    path = tmp_path / "masks" / "question-1.safetensors"
    save_supports(path, supports)
    found = load_supports(path)
    assert found.keys() == supports.keys()
    assert all(torch.equal(found[name], support) for name, support in supports.items())
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.stat().st_size < 400  # 150 blocks each: 19 bytes, and a header


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no saved supports"):
        load_supports(tmp_path / "none.safetensors")
    save_file({"wise": torch.ones(4)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="no saved supports"):
        load_supports(tmp_path / "other.safetensors")
