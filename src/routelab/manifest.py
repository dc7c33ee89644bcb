"""What a run was made of: versions, commit, seeds, hashes of data and host, hardware, command, times."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from routelab import processes
from routelab._version import __version__
from routelab.recipe import AnyRecipe
from routelab.rundir import RunDirectory, read_json, write_json

_PACKAGES = ("torch", "transformers", "trl", "accelerate", "datasets", "safetensors", "tokenizers", "numpy", "scipy")


class Manifest:
    """``manifest.json``, written at the start of a run and after every stage."""

    def __init__(self, run: RunDirectory, recipe: AnyRecipe, command: str) -> None:
        self._run = run
        self._values: dict[str, Any] = read_json(run.manifest) if run.manifest.is_file() else {}
        self._values.setdefault("name", recipe.name)
        self._values.setdefault("seeds", list(recipe.seeds))
        self._values.setdefault("data", {})
        self._values.setdefault("stages", [])
        self._values.update(versions=versions(), commit=commit(), hardware=hardware())
        self._session: dict[str, Any] = {"command": command, "started": _now(), "ended": None, "seconds": None}
        if processes.count() > 1:
            self._session["processes"] = processes.count()
        self._values.setdefault("sessions", []).append(self._session)
        self._began = time.perf_counter()
        self._write()

    def record(self, key: str, name: str, value: Any) -> None:
        """Note one fact, such as the hash of a data source, under ``key``."""
        self._values.setdefault(key, {})[name] = value
        self._write()

    @contextmanager
    def stage(self, name: str, **where: Any) -> Iterator[None]:
        """Time one stage; it is noted when it ends without an error."""
        began = time.perf_counter()
        yield
        self._values["stages"].append({"stage": name, **where, "seconds": round(time.perf_counter() - began, 3)})
        self._write()

    def close(self) -> None:
        """Note when this invocation ended."""
        self._session.update(ended=_now(), seconds=round(time.perf_counter() - self._began, 3))
        self._write()

    def _write(self) -> None:
        write_json(self._run.manifest, self._values)


def versions() -> dict[str, str]:
    """Return the versions of Python, Routelab and the packages that its numbers depend on."""
    found = {"python": platform.python_version(), "routelab": __version__}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str | None:
    """Return the commit of the repository around the working directory, with ``+changes`` if dirty, or None."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return None
    return f"{head}+changes" if _git("status", "--porcelain") else head


def hardware() -> dict[str, Any]:
    """Return the processor, usable cores, memory and accelerator."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory(),
        "accelerator": torch.cuda.get_device_name() if cuda else None,
        "system": platform.platform(),
    }


def rows_hash(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of rows in canonical JSON, one a line: the same rows hash the same wherever they came from."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
