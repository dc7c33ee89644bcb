"""The manifest says what a run was made of, keeps every session and times every stage."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from routelab.hosts.files import folder_hashes
from routelab.manifest import Manifest, commit, rows_hash
from routelab.recipe import load_recipe
from routelab.rundir import RunDirectory, read_json


def test_sessions_stages_and_facts(tmp_path: Path) -> None:
    recipe = load_recipe("mini/aar")
    run = RunDirectory.open(tmp_path / "run", recipe, resume=False)
    first = Manifest(run, recipe, "routelab run mini/aar")
    first.record("data", "rows", {"rows": 2, "sha256": "ab"})
    with first.stage("train", arm="aar", seed=0):
        pass
    with pytest.raises(RuntimeError), first.stage("train", arm="aar", seed=1):
        raise RuntimeError("cut off")
    second = Manifest(run, recipe, "routelab run mini/aar --resume")
    second.close()
    values = read_json(run.manifest)
    assert [session["command"] for session in values["sessions"]] == [
        "routelab run mini/aar",
        "routelab run mini/aar --resume",
    ]
    assert values["sessions"][0]["ended"] is None
    assert values["sessions"][1]["seconds"] >= 0
    assert [(stage["stage"], stage["seed"]) for stage in values["stages"]] == [("train", 0)]
    assert values["data"] == {"rows": {"rows": 2, "sha256": "ab"}}
    assert values["seeds"] == [0, 1, 2]
    assert {"python", "routelab", "torch", "transformers"} <= set(values["versions"])
    assert values["hardware"]["cores"] >= 1


def test_commit_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    clean = commit()
    assert clean is not None
    assert len(clean) == 40
    (tmp_path / "new").touch()
    assert commit() == f"{clean}+changes"


def test_hashes_depend_on_content_and_order_alone(tmp_path: Path) -> None:
    assert rows_hash([{"a": 1, "b": 2}]) == rows_hash([{"b": 2, "a": 1}])
    assert rows_hash([{"a": 1}, {"a": 2}]) != rows_hash([{"a": 2}, {"a": 1}])
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert list(folder_hashes(tmp_path)) == ["config.json"]
