"""Two processes over gloo against one: losses, weights, checkpoints that cross, evaluation. Also their script."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, OlmoeConfig, OlmoeForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

import routelab
from routelab import processes
from routelab.evaluate import evaluate
from routelab.hosts.minis.loader import TOKENIZER
from routelab.rundir import read_jsonl
from routelab.train import TrainConfig, train
from routelab.train.freeze import trainable_parameters
from routelab.train.trainer import RoutingTrainer

BASE: dict[str, Any] = {"epochs": 1, "learning_rate": 3e-3, "weight_decay": 1.0, "log_every": 1}
CASES: dict[str, tuple[str, TrainConfig]] = {
    # 11 rows: the last step has three of them, of which a second process gets one.
    "aar": ("aar", TrainConfig(batch_size=4, **BASE)),
    "aar, dealt": ("aar", TrainConfig(batch_size=2, grad_accum=4, gradient_checkpointing=True, **BASE)),
    # The last step has one row: the second process has none of its own.
    "aar, by example": ("aar", TrainConfig(batch_size=5, loss_normalisation="example", **BASE)),
    "aar, packed": ("aar", TrainConfig(batch_size=1, grad_accum=3, packing=True, max_length=128, **BASE)),
    "own loss": ("taskrouting", TrainConfig(batch_size=2, grad_accum=2, aux_loss_coef=0.1, **BASE)),
    # A row a step: each step has one mode, so that one expert rests.
    "path-lock": ("pathlock", TrainConfig(batch_size=1, grad_accum=2, **BASE)),
    "path-lock, one row": ("pathlock", TrainConfig(batch_size=1, **BASE)),
}
RESUMED = TrainConfig(batch_size=4, save_every=1, **BASE)
TASKS = ("mini-arithmetic", "mini-facts")
LIMIT = 5


class Stop(Exception):
    pass


def rows() -> list[dict[str, Any]]:
    modes = ["/think", "/think", "/no_think", "/think", "/no_think", "/no_think"]
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is {n}? {modes[n % 6]}"},
                {"role": "assistant", "content": "12 " * (1 + n % 4)},
            ],
            "task": ["maths", "places"][n % 2],
        }
        for n in range(11)
    ]


def load(method: str) -> tuple[PreTrainedModel, Any]:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, local_files_only=True)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    model: PreTrainedModel
    if method == "pathlock":
        model, config = Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=8)), routelab.PathLockConfig()
    else:
        model = OlmoeForCausalLM(OlmoeConfig(**sizes, num_experts=4, num_experts_per_tok=2))
        config = {
            "aar": routelab.AARConfig(layers="all", window=4),
            "taskrouting": routelab.TaskRoutingConfig(tasks=("maths", "places"), task_router=0.5, load_balance=0.1),
        }[method]
    return routelab.attach(model.eval(), config, tokenizer=tokenizer), tokenizer


def trained(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainable_parameters(model).items()}


def run(name: str, folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    method, config = CASES[name]
    model, tokenizer = load(method)
    result = train(model, tokenizer, rows(), config, seed=1, output_dir=folder)
    names = ("step", "loss", "router_loss", "grad_norm")
    history = [{key: line.get(key, 0.0) for key in names} for line in result.history]
    return trained(model), {"history": history, "first": result.loss_first, "data": result.data_sha256}


def resume(folder: Path) -> dict[str, torch.Tensor]:
    model, tokenizer = load("aar")
    assert train(model, tokenizer, rows(), RESUMED, seed=1, output_dir=folder, resume=True).resumed_from == 1
    return trained(model)


def cut_off(folder: Path) -> None:
    """Train one step, which is saved, and stop in the second."""
    step = RoutingTrainer.training_step

    def stop(trainer: RoutingTrainer, *args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == 1:
            raise Stop
        return step(trainer, *args, **kwargs)

    model, tokenizer = load("aar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoutingTrainer, "training_step", stop)
        with pytest.raises(Stop):
            train(model, tokenizer, rows(), RESUMED, seed=1, output_dir=folder)


def measure(folder: Path) -> dict[str, Any]:
    model, tokenizer = load("aar")
    found = {}
    for task in TASKS:
        path = folder / f"{task}.jsonl"
        found[task] = evaluate(model, tokenizer, task, limit=LIMIT, max_new_tokens=6, records_path=path)
    sampled = {"num_samples": 2, "temperature": 1.0, "max_new_tokens": 4}
    found["sampled"] = evaluate(
        model, tokenizer, "mini-facts", limit=3, records_path=folder / "sampled.jsonl", **sampled
    )
    return {name: {k: v for k, v in each.items() if k != "seconds"} for name, each in found.items()}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    processes.join()
    assert processes.count() == 2
    found = {}
    for name in CASES:
        weights, found[name] = run(name, folder / name)
        save_file(weights, folder / f"{name}-{processes.rank()}.safetensors")
    save_file(resume(folder / "from one"), folder / f"resumed-{processes.rank()}.safetensors")
    cut_off(folder / "from two")
    found["evaluated"] = measure(folder)
    (folder / f"found-{processes.rank()}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two(by_two: Callable[[str, Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left, the second of which went on from what one process had begun."""
    folder = tmp_path_factory.mktemp("two")
    cut_off(folder / "from one")
    by_two(__file__, folder)
    return folder


@pytest.mark.parametrize("name", list(CASES))
def test_two_processes_train_as_one(name: str, two: Path, tmp_path: Path) -> None:
    weights, found = run(name, tmp_path)
    theirs = [load_file(two / f"{name}-{rank}.safetensors") for rank in range(2)]
    for key, tensor in weights.items():
        torch.testing.assert_close(theirs[0][key], tensor, rtol=0, atol=1e-4)
        assert torch.equal(theirs[0][key], theirs[1][key])
    told = json.loads((two / "found-0.json").read_text())[name]
    assert told["data"] == found["data"]
    for line, wanted in zip(told["history"], found["history"], strict=True):
        assert line.keys() == wanted.keys()
        assert list(line.values()) == pytest.approx(list(wanted.values()), abs=1e-4)
    lines = (two / name / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == len(found["history"])  # written once


def test_a_run_crosses_from_one_process_to_two_and_back(two: Path, tmp_path: Path) -> None:
    model, tokenizer = load("aar")
    train(model, tokenizer, rows(), RESUMED, seed=1, output_dir=tmp_path / "whole")
    shutil.copytree(two / "from two", tmp_path / "from two")
    back = resume(tmp_path / "from two")
    there = load_file(two / "resumed-0.safetensors")
    for key, tensor in trained(model).items():
        torch.testing.assert_close(there[key], tensor, rtol=0, atol=1e-4)
        torch.testing.assert_close(back[key], tensor, rtol=0, atol=1e-4)


def test_evaluation_is_shared_out_with_the_same_result(two: Path, tmp_path: Path) -> None:
    wanted = measure(tmp_path)
    for rank in range(2):
        found = json.loads((two / f"found-{rank}.json").read_text())["evaluated"]
        assert found == json.loads(json.dumps(wanted))
    for name in (*TASKS, "sampled"):
        for theirs, ours in zip(read_jsonl(two / f"{name}.jsonl"), read_jsonl(tmp_path / f"{name}.jsonl"), strict=True):
            likelihoods = theirs.pop("log_likelihoods", [])
            assert likelihoods == pytest.approx(ours.pop("log_likelihoods", []), abs=1e-4)
            assert theirs == ours


if __name__ == "__main__":
    main(Path(sys.argv[1]))
