"""Compiling our C++ kernels: kept once made, and a named error where that cannot be."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from routelab.errors import BackendError
from routelab.ops import native
from routelab.ops.block_grid import BlockGrid


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
    assert native.load().attend
    (kept,) = (tmp_path / "routelab").iterdir()
    assert kept.name.startswith("blocks-")
    before = kept.stat().st_mtime_ns
    native.load.cache_clear()
    assert native.load().attend
    assert [path.stat().st_mtime_ns for path in (tmp_path / "routelab").iterdir()] == [before]


def test_no_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=r"needs a C\+\+ compiler: none of"):
        native.load()
    query = torch.zeros(1, 1, 32, 8)
    assert not native.usable(query, BlockGrid.of(query, query, 16, None))


def test_compiler_that_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "CXX", pretend(tmp_path / "cc", 'test "$1" = --version && exit 0; echo no such target >&2; exit 1')
    )
    with pytest.raises(BackendError, match="fails on the kernels in native: no such target"):
        native.load()


def test_nowhere_to_keep_it(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CXX", pretend(tmp_path / "cc", "exit 0"))
    with pytest.raises(BackendError, match="set XDG_CACHE_HOME"):
        native.load()


def test_library_of_something_else(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "CXX", pretend(tmp_path / "cc", 'for last; do :; done; test "$1" = --version || echo x > "$last"')
    )
    with pytest.raises(BackendError, match="cannot be compiled and kept"):
        native.load()
    assert os.listdir(tmp_path / "cache" / "routelab")
