"""Programs that a model wrote: what passes, and that nothing gets away."""

from __future__ import annotations

import time

import psutil
import pytest

from routelab.evaluate.harness.code import pass_at, programs, run_program

DOC = {
    "prompt": "import math\n\ndef half(n):\n    '''Half of n.'''\n",
    "entry_point": "half",
    "test": "def check(candidate):\n    assert candidate(4) == 2\n",
}


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("x = 1", "passed"),
        ("assert False", "failed"),
        ("import sys; sys.exit(0)", "failed"),
        ("import os; os._exit(0)", "failed"),
        ("def broken(:", "failed"),
        ("x = bytearray(1 << 29)", "failed"),
        ("open('big', 'wb').write(bytes(1 << 21))", "failed"),
        ("import os; assert set(os.listdir()) == {'program.py'} and 'ROUTELAB_DATA' not in os.environ", "passed"),
    ],
)
def test_outcomes(source: str, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTELAB_DATA", "/somewhere")
    assert run_program(source, memory=1 << 28) == outcome


def test_what_runs_too_long_is_killed_with_its_children() -> None:
    mark = f"sleep {300 + time.time_ns() % 1000}.5"
    source = f"import subprocess\nsubprocess.Popen({mark.split()!r})\nwhile True: pass"
    began = time.perf_counter()
    assert run_program(source, seconds=1) == "timed out"
    assert time.perf_counter() - began < 20
    children = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == mark.split()]
    assert not psutil.wait_procs(children, timeout=20)[1]  # killed is not yet gone


def test_programs_from_completions_and_blocks() -> None:
    ((completed, block),) = programs(
        [["    return n / 2\n", "Sure:\n```python\ndef half(n):\n    return math.ceil(n / 2)\n```\nbye"]], [DOC]
    )
    assert completed == DOC["prompt"] + "    return n / 2\n"
    assert block == "import math\n\ndef half(n):\n    return math.ceil(n / 2)\n"


def test_pass_at_k_counts_right_programs() -> None:
    right, wrong = DOC["prompt"] + "    return n // 2\n", DOC["prompt"] + "    return n\n"
    assert pass_at(DOC, [[right, wrong]]) == {"pass@1": pytest.approx(0.5)}
