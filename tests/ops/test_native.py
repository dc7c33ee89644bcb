"""Compiling our C++ kernels: kept once made, and a named error where that cannot be."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from routelab.errors import BackendError
from routelab.ops import native


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """No library is loaded already, and those of this test are not kept."""
    native.load.cache_clear()
    yield
    native.load.cache_clear()


def pretend(path: Path, does: str) -> str:
    """A compiler that does something else."""
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler: install g++ or clang++")
def test_compiled_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.load("block_sparse").attend
    (kept,) = (tmp_path / "routelab").iterdir()
    assert kept.name.startswith("block_sparse-")
    before = kept.stat().st_mtime_ns
    native.load.cache_clear()
    assert native.load("block_sparse").attend
    assert [path.stat().st_mtime_ns for path in (tmp_path / "routelab").iterdir()] == [before]


def test_no_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=r"needs a C\+\+ compiler: none of"):
        native.load("block_sparse")
    assert not native.works("block_sparse")


def test_compiler_that_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "CXX", pretend(tmp_path / "cc", 'test "$1" = --version && exit 0; echo no such target >&2; exit 1')
    )
    with pytest.raises(BackendError, match=r"fails on block_sparse\.cpp: no such target"):
        native.load("block_sparse")


def test_nowhere_to_keep_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CXX", pretend(tmp_path / "cc", "exit 0"))
    with pytest.raises(BackendError, match="set XDG_CACHE_HOME"):
        native.load("block_sparse")


def test_library_of_something_else(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "CXX", pretend(tmp_path / "cc", 'for last; do :; done; test "$1" = --version || echo x > "$last"')
    )
    with pytest.raises(BackendError, match="cannot be compiled and kept"):
        native.load("block_sparse")
    assert os.listdir(tmp_path / "cache" / "routelab")
