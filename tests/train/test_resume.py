"""Interrupt and resume. Run as a script, this file is the training that a test kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import OlmoeConfig, OlmoeForCausalLM, PreTrainedTokenizerFast

import routelab
from routelab.errors import CheckpointError, TrainingError
from routelab.train import TrainConfig, train
from routelab.train.freeze import trainable_parameters

Rows = list[dict[str, Any]]
CONFIG = TrainConfig(steps=12, batch_size=2, grad_accum=2, learning_rate=1e-2, log_every=1, save_every=3)


def host(vocab_size: int, method: str = "aar", seed: int = 0, dtype: torch.dtype = torch.float32) -> OlmoeForCausalLM:
    torch.manual_seed(seed)
    config = OlmoeConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_experts=8,
        num_experts_per_tok=3,
        attention_dropout=0.0 if method == "aar" else 0.2,
        pad_token_id=0,
        initializer_range=0.2,
    )
    chosen = routelab.AARConfig(layers="all", window=5) if method == "aar" else routelab.RoutingOnlyConfig()
    return routelab.attach(OlmoeForCausalLM(config).to(dtype), chosen)


def bits(model: OlmoeForCausalLM) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainable_parameters(model).items()}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def losses(directory: Path) -> list[tuple[int, float, float]]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines]


def wait_for_step(directory: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        path = directory / "metrics.jsonl"
        if path.exists() and path.read_text().count("\n") >= step:
            return
        time.sleep(0.05)
    raise AssertionError(f"the training never reached step {step}")


def test_kill_9_then_resume_gives_the_weights_of_an_uninterrupted_run(
    tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    whole = host(len(tokenizer))
    train(whole, tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path / "whole")

    killed = tmp_path / "killed"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen([sys.executable, __file__, str(killed)], env=environment)
    try:
        wait_for_step(killed, 8, process)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (killed / "checkpoint-6").is_dir()

    resumed = host(len(tokenizer))
    result = train(resumed, tokenizer, rows, CONFIG, seed=5, output_dir=killed, resume=True)
    assert result.resumed_from == 6
    assert_same_bits(bits(resumed), bits(whole))
    assert losses(killed) == losses(tmp_path / "whole")
    assert [line["step"] for line in result.history] == list(range(1, 13))


class Stop(Exception):
    pass


def interrupt(model: Any, tokenizer: Any, rows: Rows, directory: Path, at: int, **options: Any) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["step"] == at:
            raise Stop

    with pytest.raises(Stop):
        train(
            model, tokenizer, rows, **{"config": CONFIG, "seed": 5, "output_dir": directory, "on_log": stop, **options}
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_restores_dropout_and_master_weights(
    dtype: torch.dtype, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    def make() -> OlmoeForCausalLM:
        return host(len(tokenizer), "routing_only", dtype=dtype)

    whole, resumed = make(), make()
    train(whole, tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path / "whole")
    interrupt(make(), tokenizer, rows, tmp_path / "cut", at=5)
    torch.manual_seed(999)
    assert train(resumed, tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path / "cut", resume=True).resumed_from == 3
    assert_same_bits(bits(resumed), bits(whole))


def test_a_finished_run_comes_back_without_training(
    tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    model, again = host(len(tokenizer)), host(len(tokenizer))
    first = train(model, tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path)
    second = train(again, tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path, resume=True)
    assert_same_bits(bits(again), bits(model))
    assert second.resumed_from == 12
    assert (second.loss_first, second.loss_last, second.history) == (first.loss_first, first.loss_last, first.history)
    with pytest.raises(TrainingError, match="already holds checkpoint-12; pass resume=True"):
        train(again, tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path)


def test_resume_without_a_checkpoint_starts_at_the_beginning(
    tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    interrupt(host(len(tokenizer)), tokenizer, rows, tmp_path, at=2)
    (tmp_path / ".checkpoint-3.partial").mkdir()
    result = train(host(len(tokenizer)), tokenizer, rows, CONFIG, seed=5, output_dir=tmp_path, resume=True)
    assert (result.resumed_from, len(result.history)) == (0, 12)


@pytest.fixture(scope="module")
def interrupted(tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("interrupted")
    interrupt(host(len(tokenizer)), tokenizer, rows, directory, at=8)
    return directory


def test_a_checkpoint_holds_what_trains_and_nothing_else(interrupted: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    assert sorted(path.name for path in interrupted.iterdir()) == ["checkpoint-6", "metrics.jsonl"]
    files = {path.name for path in (interrupted / "checkpoint-6").iterdir()}
    assert files == {"trained.safetensors", "optimizer.safetensors", "progress.json", "trainer_state.json"}
    model = host(len(tokenizer))
    stored = load_file(interrupted / "checkpoint-6" / "trained.safetensors")
    assert stored.keys() == trainable_parameters(model).keys()
    assert sum(t.numel() for t in stored.values()) < sum(p.numel() for p in model.parameters()) / 4


def damage(directory: Path, kind: str) -> None:
    path = directory / "checkpoint-6" / ("optimizer.safetensors" if "optimizer" in kind else "trained.safetensors")
    if kind.startswith("truncated"):
        path.write_bytes(path.read_bytes()[:-100])
        return
    if kind == "no progress":
        (directory / "checkpoint-6" / "progress.json").unlink()
        return
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("gate.weight") or name.endswith("exp_avg"))
    if kind.startswith("missing"):
        del tensors[name]
    elif kind == "changed":
        tensors[name] += 1
    elif kind == "reshaped":
        tensors[name] = tensors[name].T.contiguous()
    elif kind == "retyped":
        tensors[name] = tensors[name].half()
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "trained.safetensors cannot be read"),
        ("truncated optimizer", "optimizer.safetensors cannot be read"),
        ("no progress", "progress.json cannot be read"),
        ("missing", r"missing \['model.layers.0.mlp.gate.weight'\]"),
        ("missing optimizer", "optimizer state .*exp_avg is missing"),
        ("changed", "gate.weight is not the tensor that was written"),
        ("reshaped", r"gate.weight is torch.float32 \(32, 8\), the model's is torch.float32 \(8, 32\)"),
        ("retyped", "gate.weight is torch.float16"),
    ],
)
def test_damage_is_named(
    kind: str, message: str, interrupted: Path, tokenizer: PreTrainedTokenizerFast, rows: Rows, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(interrupted, directory)
    damage(directory, kind)
    with pytest.raises(CheckpointError, match=message):
        train(host(len(tokenizer)), tokenizer, rows, CONFIG, seed=5, output_dir=directory, resume=True)


@pytest.mark.parametrize(
    ("change", "key"),
    [({"seed": 6}, "seed"), ({"rows": 5}, "data"), ({"lr": 1e-3}, "config"), ({"host": 1}, "host"), ({}, "methods")],
)
def test_a_checkpoint_of_another_run_is_refused(
    change: dict[str, Any], key: str, interrupted: Path, tokenizer: PreTrainedTokenizerFast, rows: Rows
) -> None:
    model = host(len(tokenizer), seed=change.get("host", 0), method="aar" if change else "routing_only")
    config = TrainConfig(
        steps=12, batch_size=2, grad_accum=2, learning_rate=change.get("lr", 1e-2), save_every=change.get("rows", 4)
    )
    with pytest.raises(CheckpointError, match=f"another run: its {key} is"):
        train(
            model,
            tokenizer,
            rows[change.get("rows", 0) :],
            config,
            seed=change.get("seed", 5),
            output_dir=interrupted,
            resume=True,
        )


def main(directory: str) -> None:
    from conftest import build_tokenizer, sums

    tokenizer = build_tokenizer()
    train(
        host(len(tokenizer)),
        tokenizer,
        sums(),
        CONFIG,
        seed=5,
        output_dir=directory,
        on_log=lambda line: time.sleep(0.3),
    )


if __name__ == "__main__":
    main(sys.argv[1])
