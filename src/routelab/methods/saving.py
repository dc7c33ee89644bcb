"""Save what differs from the host, and load it back: JSON and safetensors only, nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from routelab import processes
from routelab._version import __version__
from routelab.errors import CheckpointError, closest
from routelab.methods.attachment import attach, attached, attached_host, detach
from routelab.methods.base_config import config_from
from routelab.methods.registry import METHODS, config_class, method_class

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FORMAT = 1
ROUTING_JSON = "routing.json"
ROUTING_TENSORS = "routing.safetensors"


def save(model: PreTrainedModel, path: str | os.PathLike[str]) -> Path:
    """Write the attached methods of a model to a directory: ``routing.json`` and ``routing.safetensors``.

    The JSON holds each method's configuration, the host's name and the numbers that the tensors depend on, and the
    SHA-256 of the tensor file. Both files are written under temporary names and renamed. The tokenizer of a method
    that reads text is saved beside them. Several processes all call this; shards are gathered, the first writes.

    Raises:
        HostError: nothing is attached.
        CheckpointError: ``path`` is a file.
    """
    host, folder = attached_host(model), Path(path)
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; routelab.save writes a directory")
    folder.mkdir(parents=True, exist_ok=True)
    tensors, shared = _once(
        (f"{method.name}.{name}", _whole(tensor))
        for method in attached(model)
        for name, tensor in method.state_dict().items()
    )
    if not processes.is_first():
        return folder
    partial_tensors = folder / f"{ROUTING_TENSORS}.partial"
    save_file(tensors, partial_tensors, metadata={"format": "pt"})
    description = {
        "format": FORMAT,
        "routelab": __version__,
        "host": {"name": model.config.name_or_path, **host.fingerprint()},
        "methods": [{"name": method.name, "config": asdict(method.config)} for method in attached(model)],
        "shared": shared,
        "sha256": _sha256(partial_tensors),
    }
    partial_json = folder / f"{ROUTING_JSON}.partial"
    partial_json.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    for method in attached(model):
        if method.tokenizer is not None:
            method.tokenizer.save_pretrained(folder)
    os.replace(partial_tensors, folder / ROUTING_TENSORS)
    os.replace(partial_json, folder / ROUTING_JSON)
    return folder


def load(path: str | os.PathLike[str], model: PreTrainedModel | None = None) -> PreTrainedModel:
    """Attach the methods saved in a directory and load their tensors; return the model.

    Args:
        path: a directory written by :func:`save`.
        model: the host. Without it, the host named in ``routing.json`` is loaded with ``routelab.load_host``.

    Raises:
        CheckpointError: a file is missing, damaged, of a newer format, or saved from a host of another shape.
        HostError: the named host cannot be loaded.
    """
    folder = Path(path)
    description = _read_description(folder)
    tensors = _read_tensors(folder, description)
    if model is None:
        from routelab.hosts.loading import load_host

        if not description["host"]["name"]:
            raise CheckpointError(f"{folder} does not name its host; pass it: routelab.load(path, model)")
        model, _ = load_host(description["host"]["name"])
    configs: list[Any] = [
        config_from(config_class(entry["name"]), entry["config"], f"{folder / ROUTING_JSON}, method {entry['name']!r}")
        for entry in description["methods"]
    ]
    kinds = [method_class(config) for config in configs]
    own, saved = kinds[0].locate(model).fingerprint(), description["host"]
    for key, value in own.items():
        if saved.get(key) != value:
            raise CheckpointError(
                f"{folder} was saved from a host with {key} {saved.get(key)!r}, this one has {value!r}"
            )
    if attached(model):
        raise CheckpointError(f"the model already has {attached(model)}; detach first, then load {folder}")
    try:
        for config, kind in zip(configs, kinds, strict=True):
            attach(model, config, tokenizer=_read_tokenizer(folder) if kind.reads_text else None)
            prefix = f"{kind.name}."
            state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            attached(model)[-1].load_state_dict(state)
    except BaseException:
        if attached(model):
            detach(model)
        raise
    return model


def _read_description(folder: Path) -> dict[str, Any]:
    file = folder / ROUTING_JSON
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
        version, _, _ = int(description["format"]), str(description["host"]["name"]), str(description["sha256"])
        methods = [(str(entry["name"]), dict(entry["config"])) for entry in description["methods"]]
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder} holds no {ROUTING_JSON}; is it a directory written by routelab.save?"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{file} is damaged: {error!r}") from error
    if version > FORMAT:
        raise CheckpointError(
            f"{file} has format {version}, written by routelab {description.get('routelab')}; this version reads "
            f"up to {FORMAT}: upgrade routelab"
        )
    if not methods:
        raise CheckpointError(f"{file} names no method: there is nothing to load")
    for name, _ in methods:
        if name not in METHODS:
            raise CheckpointError(f"{file} names the unknown method {name!r}{closest(name, METHODS)}")
    return dict(description)


def _whole(tensor: Tensor) -> Tensor:
    """Gather a tensor that FSDP has sharded; every process of the run takes part."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def _once(named: Iterable[tuple[str, Tensor]]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return every tensor once, by its first name, and the first name of each that has a further one: two methods may
    train the same weight."""
    tensors: dict[str, Tensor] = {}
    first: dict[tuple[int, torch.Size], str] = {}
    shared: dict[str, str] = {}
    for name, tensor in named:
        kept = first.setdefault((tensor.data_ptr(), tensor.shape), name)
        if kept == name:
            tensors[name] = tensor.contiguous()
        else:
            shared[name] = kept
    return tensors, shared


def _read_tensors(folder: Path, description: Mapping[str, Any]) -> dict[str, Tensor]:
    file = folder / ROUTING_TENSORS
    if not file.is_file():
        raise CheckpointError(f"{folder} holds no {ROUTING_TENSORS}")
    if _sha256(file) != description["sha256"]:
        raise CheckpointError(f"{file} is damaged or truncated: its SHA-256 is not the one in {ROUTING_JSON}")
    try:
        with safe_open(file, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise CheckpointError(f"{file} is no valid safetensors file: {error}") from error
    shared = description.get("shared", {})
    missing = sorted(set(shared.values()) - tensors.keys())
    if missing:
        raise CheckpointError(f"{folder / ROUTING_JSON} refers to tensors that {file} lacks: {', '.join(missing)}")
    return tensors | {name: tensors[kept] for name, kept in shared.items()}


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder} holds no tokenizer that can be loaded: {error}") from error


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
