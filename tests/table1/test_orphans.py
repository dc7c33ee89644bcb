"""A grid whose process is killed leaves no worker behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from routelab.table1.grid import run_grid
from routelab.table1.spec import CellSpec

if __name__ == "__main__":
    spec = CellSpec(tasks=10, experts=3, source="fictional", pairs=200, epochs=1000)
    run_grid([spec], 1, None, Path(sys.argv[1]))
"""


def workers(parent: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "grid.py"
    script.write_text(CODE, encoding="utf-8")
    grid = subprocess.Popen([sys.executable, str(script), str(tmp_path / "out")], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(found := workers(grid.pid)) < 2 and time.monotonic() < deadline:  # the worker, and spawn's tracker
        time.sleep(0.2)
    time.sleep(3)
    assert len(found) >= 2, "the grid started no worker"
    grid.send_signal(signal.SIGKILL)
    grid.wait()
    while any(alive(each) for each in found) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [each for each in found if alive(each)]
