"""A sweep takes a new folder or its own, and names what is in the way of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from routelab.errors import RecipeError
from routelab.rundir import write_json, write_text
from routelab.sweeps.folder import claim_sweep


def test_new_and_own(tmp_path: Path) -> None:
    folder = claim_sweep(tmp_path / "a" / "b", "depth", resume=False)
    assert folder.is_dir()
    assert claim_sweep(folder, "depth", resume=True) == folder, "an empty one"
    (folder / "cells").mkdir()
    assert claim_sweep(folder, "depth", resume=True) == folder, "one that was cut off"
    write_json(folder / "results.json", {"kind": "study", "study": "depth"})
    assert claim_sweep(folder, "depth", resume=True) == folder
    with pytest.raises(RecipeError, match="already holds something; continue a sweep with --resume"):
        claim_sweep(folder, "depth", resume=False)


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RecipeError, match="file is a file and cannot hold a sweep; choose a directory"):
        claim_sweep(file, "depth", resume=True)
    with pytest.raises(RecipeError, match="below cannot hold a sweep: Not a directory; choose another"):
        claim_sweep(file / "below", "depth", resume=False)
    other = tmp_path / "other"
    write_json(other / "results.json", {"kind": "study", "study": "window"})
    with pytest.raises(RecipeError, match="other holds results of 'window', not of 'depth'; choose another"):
        claim_sweep(other, "depth", resume=True)
    write_json(other / "results.json", {"kind": "training"})
    with pytest.raises(RecipeError, match="holds results of 'training', not of 'depth'"):
        claim_sweep(other, "depth", resume=True)
    write_text(other / "results.json", "{")
    with pytest.raises(RecipeError, match="missing or damaged"):
        claim_sweep(other, "depth", resume=True)
    (other / "results.json").write_text("[]")
    with pytest.raises(RecipeError, match="holds results of 'unknown'"):
        claim_sweep(other, "depth", resume=True)


def test_an_unfinished_run_is_no_sweep(tmp_path: Path) -> None:
    write_text(tmp_path / "recipe.yaml", "name: x\n")
    (tmp_path / "cells").mkdir()
    with pytest.raises(RecipeError, match="holds something else than a sweep"):
        claim_sweep(tmp_path, "seeds", resume=True)
