"""HumanEval: programs from completions, run against their tests in processes with limits.

The limits keep a program from hanging or filling the machine; they are no sandbox. It runs as the user who started the
evaluation, so such tasks run only where that was confirmed (``--confirm_run_unsafe_code``).
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from routelab.evaluate.stats import pass_at_k

Doc = Mapping[str, Any]
Outcome = Literal["passed", "failed", "timed out"]

SECONDS = 10
MEMORY = 1 << 30
_FILE_BYTES = 1 << 20
_KS = (1, 10)
#: The exit code of a program that came to the end of its tests; leaving early is no success.
_DONE = 97
_LAUNCH = """
import resource, runpy, sys
for kind, value in (pair.split("=") for pair in sys.argv[1:]):
    resource.setrlimit(int(kind), (int(value), int(value)))
del sys.argv[1:]
runpy.run_path("program.py", run_name="__main__")
"""
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(?P<code>.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def programs(outputs: Sequence[Sequence[str]], docs: Sequence[Doc]) -> list[list[str]]:
    """Return a whole program for every output: what the prompt began, continued. A filter of the harness.

    An output with a fenced block counts as the block. Code that defines the asked function itself replaces the prompt's
    definition of it, and keeps its imports.
    """
    return [[_program(doc, output) for output in each] for each, doc in zip(outputs, docs, strict=True)]


def pass_at(doc: Doc, results: Sequence[Sequence[str]]) -> dict[str, float]:
    """Run every sampled program against the tests: pass@1 and pass@10 (arXiv 2107.03374, equation 1).

    A ``k`` above the number of samples is not defined, and left out.
    """
    tests = f"\n\n{doc['test']}\n\ncheck({doc['entry_point']})\n"
    samples = list(results[0])
    right = sum(run_program(sample + tests) == "passed" for sample in samples)
    return {f"pass@{k}": pass_at_k(len(samples), right, k) for k in _KS if k <= len(samples)}


def run_program(source: str, *, seconds: float = SECONDS, memory: int = MEMORY) -> Outcome:
    """Run a Python program to its last line, in an empty directory and without the user's environment.

    Args:
        seconds: of time, and of processor time rounded up; the program and all it started are then killed.
        memory: bytes of address space. Files may have 1 MiB; no core is written.
    """
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: int(seconds) + 1,
        resource.RLIMIT_FSIZE: _FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(f"{source}\nraise SystemExit({_DONE})\n", encoding="utf-8")
        started = subprocess.Popen(
            [sys.executable, "-I", "-c", _LAUNCH, *(f"{kind}={value}" for kind, value in limits.items())],
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return "passed" if started.wait(seconds) == _DONE else "failed"
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            _kill_all(started)


def _program(doc: Doc, output: str) -> str:
    fenced = _FENCE.search(output)
    code = fenced["code"] if fenced else output
    prompt = str(doc["prompt"])
    if not re.search(rf"^def {re.escape(doc['entry_point'])}\b", code, re.MULTILINE):
        return prompt + code
    return prompt[: prompt.rfind(f"def {doc['entry_point']}")] + code


def _kill_all(started: subprocess.Popen[bytes]) -> None:
    """Kill the program's process group, parts of which may outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
