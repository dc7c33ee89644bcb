"""A tiny run from end to end: every output is there, the numbers hang together, and a killed run ends the same."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from routelab.errors import RecipeError
from routelab.recipe import Recipe, load_recipe
from routelab.report.html import report_run
from routelab.run import run_recipe
from routelab.rundir import RunDirectory, read_json, read_jsonl

RECIPE = """
name: tiny
title: A tiny run
host: {{name: {host}, dtype: float32}}
arms:
  aar: [{{method: aar, layers: all, window: 4}}]
  routing-only: [{{method: routing_only}}]
control: routing-only
seeds: [0, 1]
data: [{{source: mini-arithmetic, limit: 12}}]
train: {{steps: {steps}, batch_size: 2, max_length: 128, learning_rate: 1e-2, log_every: 1, save_every: 1}}
evaluate:
  - {{task: mini-arithmetic, limit: 3, max_new_tokens: 6, batch_size: 3}}
  - {{task: mini-facts, limit: 5}}
"""


def write_recipe(folder: Path, host: Path, steps: int) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(RECIPE.format(host=host, steps=steps), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def recipe(host: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return load_recipe(write_recipe(tmp_path_factory.mktemp("recipe"), host, steps=3))


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    run_recipe(recipe, RunDirectory.open(folder, recipe, resume=False), command="routelab run tiny.yaml")
    return folder


def test_every_output_is_there(finished: Path) -> None:
    names = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    wanted = {"recipe.yaml", "manifest.json", "metrics.jsonl", "results.json", "report.html", "figures/scores.png"}
    for arm in ("aar", "routing-only"):
        for seed in (0, 1):
            wanted |= {f"routing/{arm}/seed-{seed}/{file}" for file in ("routing.json", "routing.safetensors")}
            wanted |= {f"records/{arm}/seed-{seed}/{task}.jsonl" for task in ("mini-arithmetic", "mini-facts")}
    wanted |= {"records/base/mini-arithmetic.jsonl", "records/base/mini-facts.json", "records/base/experts.npz"}
    assert wanted <= names, wanted - names
    assert not [name for name in names if ".tmp" in name]


def test_results_hang_together(finished: Path) -> None:
    results = read_json(finished / "results.json")
    facts = results["arms"]["aar"]["tasks"]["mini-facts"]
    for seed in ("0", "1"):
        records = read_jsonl(finished / f"records/aar/seed-{seed}/mini-facts.jsonl")
        assert facts["seeds"][seed]["value"] == sum(record["score"] for record in records) / 5
    assert facts["mean"] == pytest.approx((facts["seeds"]["0"]["value"] + facts["seeds"]["1"]["value"]) / 2)
    comparison = next(row for row in results["comparisons"] if row["task"] == "mini-facts")
    control = results["arms"]["routing-only"]["tasks"]["mini-facts"]["mean"]
    assert comparison["difference"] == pytest.approx(facts["mean"] - control)
    assert comparison["low"] <= comparison["difference"] <= comparison["high"]
    assert (comparison["examples"], comparison["covers"]) == (5, "examples and seeds")
    aar, routing = (results["arms"][arm] for arm in ("aar", "routing-only"))
    # Routers: 2 layers of 4 experts by 16. New: per layer and view A [features, 4] and G [4, 16 + features].
    assert routing["trainable_parameters"] == 2 * 4 * 16
    assert aar["new_parameters"] == 2 * 4 * ((4 + 3) + (16 + 4) + (16 + 3))
    assert aar["trainable_parameters"] == routing["trainable_parameters"] + aar["new_parameters"]
    assert all(summary["frozen_identical"] for arm in (aar, routing) for summary in arm["train"].values())
    assert results["same_batches"] is True
    assert 0 <= aar["agreement"]["mean"] <= 1
    assert routing["agreement"]["layers"] == {}


def test_manifest_says_what_the_run_was_made_of(finished: Path) -> None:
    manifest = read_json(finished / "manifest.json")
    assert manifest["data"]["mini-arithmetic"]["rows"] == 12
    assert {"config.json", "model.safetensors"} <= set(manifest["host"])
    stages = [(stage["stage"], stage["arm"], stage["seed"]) for stage in manifest["stages"]]
    assert stages.count(("train", "aar", 1)) == 1
    assert stages.count(("evaluate", "base", None)) == 2
    assert manifest["sessions"][0]["command"] == "routelab run tiny.yaml"
    assert manifest["sessions"][0]["ended"]


def test_seeds_differ_and_arms_share_their_data(finished: Path) -> None:
    first, second = (load_file(finished / f"routing/aar/seed-{s}/routing.safetensors") for s in (0, 1))
    assert any(not torch.equal(first[name], second[name]) for name in first)
    rows = read_jsonl(finished / "metrics.jsonl")
    assert {(row["arm"], row["seed"]) for row in rows} == {(a, s) for a in ("aar", "routing-only") for s in (0, 1)}
    assert [row["step"] for row in rows if (row["arm"], row["seed"]) == ("aar", 0)] == [1, 2, 3]


def test_a_finished_run_is_not_run_again(finished: Path, recipe: Recipe, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    saved = copy / "routing/aar/seed-0/routing.safetensors"
    before = (saved.stat().st_mtime_ns, read_json(copy / "results.json"))
    run_recipe(recipe, RunDirectory.open(copy, recipe, resume=True), command="again")
    again = read_json(copy / "results.json")
    assert saved.stat().st_mtime_ns == before[0]
    strip = {"commands"}
    assert {k: v for k, v in again.items() if k not in strip} == {k: v for k, v in before[1].items() if k not in strip}
    assert len(read_json(copy / "manifest.json")["sessions"]) == 2


def test_only_what_is_missing_is_done(finished: Path, recipe: Recipe, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "records/aar/seed-1/mini-facts.json").unlink()
    said: list[str] = []
    run_recipe(recipe, RunDirectory.open(copy, recipe, resume=True), command="again", say=said.append)
    assert said == ["evaluating aar, seed 1 on mini-facts"]


def test_report_of_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"holds no results\.json"):
        report_run(tmp_path)


def test_killed_in_mid_training_and_resumed_ends_with_the_same_weights(host: Path, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, host, steps=20)
    settings = ["--set", "seeds=[0]", "--set", "evaluate=[{task: mini-facts, limit: 5}]"]
    words = [sys.executable, "-m", "routelab.cli", "run", str(path), *settings, "--out"]
    process = subprocess.Popen([*words, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "killed/checkpoints/aar/seed-0"
    deadline = time.monotonic() + 300
    while not list(checkpoints.glob("checkpoint-*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    assert not (tmp_path / "killed/routing/aar/seed-0/train.json").exists()
    subprocess.run([*words, str(tmp_path / "killed"), "--resume"], check=True, capture_output=True)

    recipe = load_recipe(path, settings[1::2])
    run_recipe(recipe, RunDirectory.open(tmp_path / "whole", recipe, resume=False), command="whole")
    for arm in ("aar", "routing-only"):
        killed, whole = (
            load_file(tmp_path / f"{r}/routing/{arm}/seed-0/routing.safetensors") for r in ("killed", "whole")
        )
        assert killed.keys() == whole.keys()
        assert all(torch.equal(killed[name], whole[name]) for name in killed)
    resumed = read_json(tmp_path / "killed/routing/aar/seed-0/train.json")["train"]["resumed_from"]
    assert 0 < resumed < 20
    assert json.loads((tmp_path / "killed/manifest.json").read_text(encoding="utf-8"))["sessions"][0]["ended"] is None
