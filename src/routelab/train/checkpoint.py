"""Training checkpoints: only what trains, in safetensors and JSON, written whole or not at all.

A folder ``checkpoint-<step>`` holds

- ``trained.safetensors``: the trained tensors, by their name in the model;
- ``optimizer.safetensors``: moments, step counts and float32 masters; the random states;
- ``progress.json``: what the run is (methods, data, seed, host, configuration) and how far it got;
- ``trainer_state.json``: Trainer's own record of the step.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from routelab.errors import CheckpointError
from routelab.train.freeze import tensor_digest
from routelab.train.optimizer import MasterAdamW
from routelab.train.randomness import random_states, restore_random_states

if TYPE_CHECKING:
    from transformers import TrainerState

_NAME = re.compile(r"checkpoint-(\d+)")
_RNG = "random/"


def latest_checkpoint(directory: Path) -> Path | None:
    """Return the complete checkpoint with the most steps in ``directory``, or None."""
    found = [path for path in directory.glob("checkpoint-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return max(found, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """Return the number of steps in a checkpoint's name."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise CheckpointError(f"{checkpoint} is not called checkpoint-<step>")
    return int(match[1])


def write_checkpoint(
    directory: Path,
    step: int,
    *,
    trained: Mapping[str, nn.Parameter],
    optimizer: MasterAdamW,
    progress: Mapping[str, Any],
    trainer_state: TrainerState,
) -> Path:
    """Write ``directory/checkpoint-<step>`` under a temporary name, rename it, then remove older checkpoints."""
    target = directory / f"checkpoint-{step}"
    partial = directory / f".{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_file({name: _plain(tensor) for name, tensor in trained.items()}, partial / "trained.safetensors")
    state = {name: _plain(tensor) for name, tensor in optimizer.tensors().items()}
    state.update({_RNG + name: tensor for name, tensor in random_states().items()})
    save_file(state, partial / "optimizer.safetensors")
    digests = {name: tensor_digest(tensor) for name, tensor in trained.items()}
    record = {**progress, "step": step, "trained": digests}
    (partial / "progress.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    trainer_state.save_to_json(str(partial / "trainer_state.json"))
    shutil.rmtree(target, ignore_errors=True)
    os.replace(partial, target)
    for old in directory.glob("checkpoint-*"):
        if _NAME.fullmatch(old.name) and old != target:
            shutil.rmtree(old)
    return target


def read_progress(checkpoint: Path, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``progress.json`` and refuse it unless it belongs to the run described by ``expected``.

    Raises:
        CheckpointError: the file is missing or damaged, or names another method, data, seed, host or configuration.
    """
    path = checkpoint / "progress.json"
    try:
        progress: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        there = progress["run"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    for key, value in expected.items():
        if there.get(key) != value:
            raise CheckpointError(
                f"{checkpoint} was written by another run: its {key} is {there.get(key)!r}, this one's {value!r}; "
                "train into another directory"
            )
    return progress


@torch.no_grad()
def restore_trained(checkpoint: Path, trained: Mapping[str, nn.Parameter], progress: Mapping[str, Any]) -> None:
    """Copy the trained tensors back, and check that every one of them came back bit by bit.

    Raises:
        CheckpointError: the file is damaged; a tensor is missing, unknown, or of another shape, dtype or content.
    """
    stored = _read(checkpoint / "trained.safetensors")
    missing, unknown = sorted(trained.keys() - stored.keys()), sorted(stored.keys() - trained.keys())
    if missing or unknown:
        raise CheckpointError(
            f"{checkpoint} does not fit this model: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}"
        )
    for name, parameter in trained.items():
        tensor = stored[name]
        if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
            raise CheckpointError(
                f"{checkpoint}: {name} is {tensor.dtype} {tuple(tensor.shape)}, the model's is {parameter.dtype} "
                f"{tuple(parameter.shape)}"
            )
        parameter.copy_(tensor)
        if tensor_digest(parameter) != progress["trained"].get(name):
            raise CheckpointError(f"{checkpoint}: {name} is not the tensor that was written")


def restore_optimizer(checkpoint: Path, optimizer: MasterAdamW) -> None:
    """Put the optimiser's tensors back."""
    stored = _read(checkpoint / "optimizer.safetensors")
    optimizer.load_tensors({name: tensor for name, tensor in stored.items() if not name.startswith(_RNG)})


def restore_random(checkpoint: Path) -> None:
    """Put the random states back."""
    stored = _read(checkpoint / "optimizer.safetensors")
    restore_random_states({name.removeprefix(_RNG): t for name, t in stored.items() if name.startswith(_RNG)})


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
