"""Compiling our C++ kernels: kept once made, made again when damaged, and a named error where that cannot be."""

from __future__ import annotations

import ctypes
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from routelab.errors import BackendError, ConfigError
from routelab.ops import native
from routelab.ops.block_grid import BlockGrid
from routelab.ops.block_mass import block_mass
from routelab.ops.block_sparse import block_sparse, prepare

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler: install g++ or clang++")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of the test's own, and no library that is loaded already."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    native._library.cache_clear()
    yield tmp_path / "cache" / "routelab"
    native._library.cache_clear()


def pretend(path: Path, does: str) -> str:
    """A compiler that does something else."""
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_compiler
def test_compiled_once_and_kept_and_made_again_when_damaged(cache: Path) -> None:
    library = native.load()
    library.problem_size.restype = ctypes.c_int64
    assert library.problem_size() == ctypes.sizeof(native._Problem), "the two descriptions of a problem agree"
    (kept,) = cache.iterdir()
    made = kept.stat().st_mtime_ns
    native._library.cache_clear()
    assert native.load().attend
    assert [path.stat().st_mtime_ns for path in cache.iterdir()] == [made]
    whole = kept.read_bytes()
    kept.unlink()  # written anew: the pages of a loaded library must stay as they are
    kept.write_bytes(whole[: len(whole) // 2])
    native._library.cache_clear()
    assert native.load().attend
    assert kept.read_bytes() == whole


@needs_compiler
def test_several_threads_ask_first(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len({id(found) for found in pool.map(lambda _: native.load(), range(4))}) == 1
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_compiler_with_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"env {native.compiler()[0]}")
    assert native.load().mass


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(BackendError, match=r"\$CXX, which is 'no-such-compiler -O2', is on the path"):
        native.load()
    native._library.cache_clear()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match=r"needs a C\+\+ compiler: c\+\+, g\+\+, clang\+\+: none is on the path"):
        native.load()
    query = torch.zeros(1, 1, 32, 8)
    assert not native.usable(query, BlockGrid.of(query, query, 16, None))
    assert prepare(torch.ones(1, 1, 2, 2).bool(), query, query, block_size=16).backend == "gather"


def test_compiler_that_fails_is_asked_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = f'test "$1" = --version && exit 0; echo x >> {tmp_path}/asked; echo no such target >&2; exit 1'
    monkeypatch.setenv("CXX", pretend(tmp_path / "cc", fails))
    for _ in range(2):
        with pytest.raises(BackendError, match="fails on the kernels in native: no such target"):
            native.load()
    assert (tmp_path / "asked").read_text() == "x\n"
    assert not list(cache.iterdir()), "nothing is left behind"


def test_compiler_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", pretend(tmp_path / "cc", 'test "$1" = --version && exit 0; kill -9 $$'))
    with pytest.raises(BackendError, match="native: it ended with -9"):
        native.load()


def test_nowhere_to_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("CXX", pretend(tmp_path / "cc", "exit 0"))
    with pytest.raises(BackendError, match="set XDG_CACHE_HOME"):
        native.load()


def test_compiler_that_makes_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = 'for last; do :; done; test "$1" = --version || echo x > "$last"'
    monkeypatch.setenv("CXX", pretend(tmp_path / "cc", writes))
    with pytest.raises(BackendError, match="cannot be compiled and kept"):
        native.load()


@needs_compiler
def test_addresses_of_other_tensors_are_never_read() -> None:
    query = torch.randn(1, 1, 64, 16)
    schedule = prepare(torch.ones(1, 1, 4, 4).bool(), query, query, block_size=16, backend="native")
    with pytest.raises(ConfigError, match=r"query as torch.float32 on a CPU, got torch.bfloat16"):
        block_sparse(*[query.bfloat16()] * 3, schedule)
    with pytest.raises(ConfigError, match=r"lse as torch.float32 on a CPU, got torch.float32 on meta"):
        block_mass(query, query, torch.zeros(1, 1, 64, device="meta"), block_size=16, backend="native")


@needs_compiler
def test_negated_views_are_read_negated() -> None:
    query = torch.randn(1, 1, 64, 16)
    run = {"layout": torch.ones(1, 1, 4, 4).bool(), "block_size": 16, "backend": "native"}
    expected = block_sparse(-query, query, query, **run)
    assert torch.equal(block_sparse(torch._neg_view(query), query, query, **run), expected)
