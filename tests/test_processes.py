"""Several processes on one recipe: one run directory with the numbers of one process; launches that would mislead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from routelab import processes
from routelab.cli import app
from routelab.errors import LaunchError, RecipeError
from routelab.recipe import load_recipe
from routelab.run import run_recipe
from routelab.rundir import LOCK, RunDirectory, read_json, read_jsonl

RECIPE = """
name: tiny
host: {{name: {host}, dtype: float32}}
arms:
  aar: [{{method: aar, layers: all, window: 4}}]
  routing-only: [{{method: routing_only}}]
control: routing-only
seeds: [0]
data: [{{source: mini-arithmetic, limit: 12}}]
train: {{steps: 3, batch_size: 4, max_length: 128, learning_rate: 1e-2, log_every: 1}}
evaluate: [{{task: mini-facts, limit: 5}}]
"""


def launched(launcher: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "MASTER_PORT")}
    return subprocess.run(
        [sys.executable, "-m", *launcher.split(), "-m", "routelab.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )


def test_two_processes_leave_the_run_directory_of_one(host: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(RECIPE.format(host=host), encoding="utf-8")
    done = launched(
        "torch.distributed.run --standalone --nproc-per-node 2", "run", str(path), "--out", str(tmp_path / "two")
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("report.html") == 1
    assert done.stderr.count("training aar, seed 0") == 1
    recipe = load_recipe(path)
    run_recipe(recipe, RunDirectory.open(tmp_path / "one", recipe, resume=False), command="c")
    files = [
        {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file() and each.name != LOCK}
        for folder in (tmp_path / "one", tmp_path / "two")
    ]
    assert files[0] == files[1]
    one, two = (read_jsonl(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], abs=1e-4)
    one, two = (read_json(tmp_path / name / "results.json") for name in ("one", "two"))
    assert two["arms"].keys() == one["arms"].keys()
    manifest = read_json(tmp_path / "two" / "manifest.json")
    assert manifest["sessions"][0]["processes"] == 2


def test_a_launcher_that_starts_one_process_instead_of_two_is_caught(tmp_path: Path) -> None:
    done = launched("accelerate.commands.launch --cpu --num_processes 2", "run", "mini/aar", "--out", str(tmp_path))
    assert done.returncode != 0
    assert "started this one alone; on CPUs use torchrun --nproc-per-node N" in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_sharding_by_accelerate_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(LaunchError, match=r"FSDP, .* shard the model yourself with routelab\.train\.sharding\.shard"):
        processes.join()


def test_what_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    processes.require_one("a table")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(LaunchError, match="a table cannot be shared by 3 processes"):
        processes.require_one("a table")


@pytest.mark.parametrize(
    ("size", "told"),
    [("", "number of processes, got ''"), ("many", "got 'many'"), ("2", "no RANK of this process")],
)
def test_an_environment_that_no_launcher_made_is_named(size: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(LaunchError, match=told):
        processes.join()


@pytest.mark.parametrize("command", ["recipes", "demo", "study"])
def test_commands_that_are_for_one_process_say_so(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(LaunchError, match=f"routelab {command} cannot be shared by 2 processes"):
        CliRunner().invoke(app, [command], catch_exceptions=False)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_the_first_process_is_raised_by_all(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def decide() -> None:
        raise RecipeError("taken")

    def broadcast(told: list[object], src: int) -> None:
        assert src == 0
        if rank == 0:
            assert isinstance(told[0][1], RecipeError)
        told[0] = (None, RecipeError("taken"))

    group = SimpleNamespace(get_rank=lambda: rank, broadcast_object_list=broadcast)
    monkeypatch.setattr(processes, "_group", lambda: group)
    with pytest.raises(RecipeError, match="taken"):
        processes.first_decides(decide)


@pytest.mark.parametrize(("items", "each"), [(7, 1), (2, 3), (1, 2), (0, 1)])
def test_results_come_back_in_the_order_of_the_items(items: int, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(own: list[int]) -> list[str]:
        return [f"{item}.{sample}" for item in own for sample in range(each)]

    def gather(parts: list[list[str]], own: list[str]) -> None:
        parts[:] = [work(list(range(items))[rank::3]) for rank in range(3)]
        assert own == parts[1]

    group = SimpleNamespace(get_world_size=lambda: 3, get_rank=lambda: 1, all_gather_object=gather)
    monkeypatch.setattr(processes, "_group", lambda: group)
    assert processes.share_out(range(items), work, each=each) == work(list(range(items)))
