"""Every example runs, and is short enough to read at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80


def test_aar(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "aar.py"), "3", "8"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("frozen bits equal: True") == 2
    assert "aar - control:" in done.stdout
    assert list(tmp_path.glob("routelab-*/aar/routing/routing.safetensors"))


def test_pathlock(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "pathlock.py"), "2", "2"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "no_think" in done.stdout


def test_taskrouting(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "taskrouting.py"), "2", "2"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    before, after = (line for line in done.stdout.splitlines() if line.startswith(("before: NMI", "after: NMI")))
    assert before.removeprefix("before") != after.removeprefix("after")
    assert list(tmp_path.glob("routelab-*/routing/routing.safetensors"))
