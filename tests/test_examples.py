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


def output_of(example: str, *words: str, folder: Path) -> str:
    """Run an example, with what it writes below ``folder``, and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_aar(tmp_path: Path) -> None:
    said = output_of("aar.py", "3", "8", folder=tmp_path)
    assert said.count("frozen bits equal: True") == 2
    assert "aar - control:" in said
    assert list(tmp_path.glob("routelab-*/aar/routing/routing.safetensors"))


def test_pathlock(tmp_path: Path) -> None:
    assert "no_think" in output_of("pathlock.py", "2", "2", folder=tmp_path)


def test_taskrouting(tmp_path: Path) -> None:
    lines = output_of("taskrouting.py", "2", "2", folder=tmp_path).splitlines()
    before, after = (line for line in lines if line.startswith(("before: NMI", "after: NMI")))
    assert before.removeprefix("before") != after.removeprefix("after")
    assert list(tmp_path.glob("routelab-*/routing/routing.safetensors"))


def test_wise(tmp_path: Path) -> None:
    said = output_of("wise.py", "mini-recurrent", "8", folder=tmp_path)
    assert "size_matched" in said
    assert "leak of later tokens, causal=True: 0.0000 nats" in said
