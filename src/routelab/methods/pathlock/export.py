"""Plain checkpoints of the host's own class, one per mode, for any engine."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor

from routelab.errors import CheckpointError, ConfigError, HostError, closest
from routelab.methods.attachment import attached
from routelab.methods.pathlock.config import MODES
from routelab.methods.pathlock.method import PathLock

if TYPE_CHECKING:
    from transformers import PreTrainedModel

INDEX = "model.safetensors.index.json"
CHOICES = (*MODES, "both")


def export(
    model: PreTrainedModel, path: str | os.PathLike[str], *, mode: str = "both", max_shard_size: str = "5GB"
) -> dict[str, Path]:
    """Write what an attached model computes in one mode as a checkpoint of its host's own class.

    ``AutoModelForCausalLM.from_pretrained`` loads it without this library, and its logits are those of the attached
    model in that mode, bit for bit in the same precision. It holds the configuration, the generation configuration,
    the tokenizer with its ``enable_thinking``, and sharded safetensors: first the shards of what both modes share, then
    those of the MLPs. ``mode="both"`` writes ``path/no_think`` and ``path/think``, and the shared shards are one file
    each, hard-linked into both.

    Args:
        path: a directory that does not exist, or is empty.
        mode: ``"think"``, ``"no_think"`` or ``"both"``.
        max_shard_size: as transformers reads it, such as ``"5GB"``.

    Returns:
        The directory of every mode written.

    Raises:
        HostError: no path-locked experts are attached.
        ConfigError: another mode.
        CheckpointError: ``path`` is a file or holds files, or the file system has no hard links.
    """
    if mode not in CHOICES:
        raise ConfigError(f"unknown mode {mode!r}{closest(mode, CHOICES)}")
    method = path_lock(model)
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists; export writes a new directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    building.chmod(0o755)
    try:
        folders = {mode: building} if mode != "both" else {name: building / name for name in MODES}
        written: Path | None = None
        for name, folder in folders.items():
            folder.mkdir(exist_ok=True)
            _write_mode(model, method, MODES.index(name), folder, max_shard_size, shared_from=written)
            written = folder
        if target.exists():
            target.rmdir()
        os.replace(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return {name: target / folder.relative_to(building) for name, folder in folders.items()}


def path_lock(model: PreTrainedModel) -> PathLock:
    """Return the path-locked experts of a model.

    Raises:
        HostError: none are attached.
    """
    for method in attached(model):
        if isinstance(method, PathLock):
            return method
    raise HostError("no path-locked experts are attached to this model; routelab.load the saved ones, or attach first")


def _write_mode(
    model: PreTrainedModel, method: PathLock, mode: int, folder: Path, max_shard_size: str, *, shared_from: Path | None
) -> None:
    shared, experts = _split(method, mode)
    shards: list[tuple[dict[str, Tensor], bool]] = []
    for tensors, both in ((shared, True), (experts, False)):
        parts = split_torch_state_dict_into_shards(tensors, max_shard_size=max_shard_size).filename_to_tensors
        shards += [({name: tensors[name] for name in names}, both) for names in parts.values()]
    weight_map: dict[str, str] = {}
    for number, (tensors, both) in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        weight_map.update(dict.fromkeys(tensors, file))
        if both and shared_from is not None:
            _link(shared_from / file, folder / file)
        else:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file, {"format": "pt"})
    size = sum(tensor.numel() * tensor.element_size() for tensors, _ in shards for tensor in tensors.values())
    _write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))})
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = str(model.dtype).removeprefix("torch.")
    config.save_pretrained(folder)
    if model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    method.tokenizer.save_pretrained(folder)


def _split(method: PathLock, mode: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the shared tensors and the MLPs' of one mode, each tensor once: the loader ties what is tied again."""
    pointers = {tensor.data_ptr() for _, locked in method.mlps() for tensor in locked.state_dict().values()}
    shared: dict[str, Tensor] = {}
    experts: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in method.plain_state(mode).items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if place in seen:
            continue
        seen.add(place)
        (experts if tensor.data_ptr() in pointers else shared)[name] = tensor.detach()
    return shared, experts


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        raise CheckpointError(
            f"cannot hard-link {source.name} into {target.parent.name} ({error}); export the modes one by one"
        ) from error


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
