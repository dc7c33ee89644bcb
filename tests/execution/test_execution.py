"""Both backends: outcomes of all tasks, whatever fails or is killed; errors that name what is missing."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import BackendError, ConfigError, MissingPackageError, closest
from routelab.execution import Task, executor
from routelab.execution.tasks import attempt
from routelab.rundir import read_json


@pytest.fixture(params=["local", "ray"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'routelab[ray]'")
    return str(request.param)


def test_outcomes(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that works, one that raises, one killed by SIGKILL once, and one killed every time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"routelab.execution.{'local' if backend == 'local' else 'ray_cluster'}.RESTARTS", 1)
    monkeypatch.setenv("ROUTELAB_EXAMPLE", "told")
    once = 'test "$ROUTELAB_EXAMPLE" = told && test -e once || { touch once; kill -9 $PPID; }'
    always = "echo x >> always; sleep 1; kill -9 $PPID"
    tasks = [
        Task("works", closest, ("a", ["a", "b"])),
        Task("raises", read_json, (tmp_path / "none.json",)),
        Task("killed once", subprocess.check_call, (["sh", "-c", once],)),
    ]
    found = {each.name: each for each in executor(backend, 2, 1)(tasks)}
    assert found["works"].value == "; did you mean 'a'? known: a, b"
    assert found["raises"].error is not None
    assert found["raises"].error.startswith("RecipeError: ")
    assert (found["killed once"].value, found["killed once"].error) == (0, None)
    (lost,) = executor(backend, 1, 1)([Task("killed always", subprocess.check_call, (["sh", "-c", always],))])
    assert lost.error is not None
    assert ("BrokenProcessPool" in lost.error) if backend == "local" else ("WorkerCrashed" in lost.error)
    assert (tmp_path / "always").read_text().count("x") == 2
    assert Path.cwd() == tmp_path


def test_whatever_a_task_raises_is_its_outcome() -> None:
    assert attempt({}.__getitem__, ("absent",)) == (None, "KeyError: 'absent'")
    with pytest.raises(KeyboardInterrupt):
        attempt(_interrupted, ())


def _interrupted() -> None:
    raise KeyboardInterrupt


def test_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match="no backend is called 'rays'; did you mean 'ray'"):
        executor("rays", 1, 1)
    with pytest.raises(ConfigError, match="a worker and a thread at least"):
        executor("local", 0, 1)

    def missing(name: str) -> Any:
        return None

    monkeypatch.setattr("routelab.execution.ray_cluster.find_spec", missing)
    with pytest.raises(MissingPackageError, match=r"pip install 'routelab\[ray\]'"):
        executor("ray", 1, 1)
