"""Read a published checkpoint: which architecture it holds, and that it holds all of it."""

from __future__ import annotations

import copy
import json
import os
from typing import Any, TypeVar

from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

from routelab.errors import CheckpointError
from routelab.hosts.recurrent.config import Architecture, RecurrentConfig, architecture_in

Model = TypeVar("Model", bound="ChecksCheckpoint")

#: Arguments that say where a checkpoint lies.
_WHERE = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")
_SHOWN = 3


class ChecksCheckpoint(PreTrainedModel):
    """Loading that settles the architecture first and refuses a checkpoint with other tensors than it needs."""

    @classmethod
    def from_pretrained(
        cls: type[Model],
        pretrained_model_name_or_path: str | os.PathLike[str],
        *model_args: Any,
        config: RecurrentConfig | None = None,
        output_loading_info: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Load a directory or hub name with the published ``config.json`` and tensor names.

        Raises:
            CheckpointError: tensors are missing, unexpected or of another shape.
        """
        where = {name: kwargs[name] for name in _WHERE if name in kwargs}
        config = settle(pretrained_model_name_or_path, config, where)
        try:
            model, found = super().from_pretrained(
                pretrained_model_name_or_path, *model_args, config=config, output_loading_info=True, **kwargs
            )
        except RuntimeError as error:
            if "mismatched" not in str(error):
                raise
            raise CheckpointError(
                f"the weights in {os.fspath(pretrained_model_name_or_path)!r} do not fit its config.json "
                f"(architecture {config.architecture!r}): {' '.join(str(error).split())}"
            ) from error
        wrong = [
            f"{len(names)} {kind} ({', '.join(sorted(map(str, names))[:_SHOWN])}{', ...' * (len(names) > _SHOWN)})"
            for kind in ("missing", "unexpected")
            if (names := found[f"{kind}_keys"])
        ]
        if wrong:
            raise CheckpointError(
                f"{os.fspath(pretrained_model_name_or_path)!r} is not a whole {config.architecture!r} checkpoint of "
                f"the shape in its config.json: {' and '.join(wrong)} tensors"
            )
        return (model, found) if output_loading_info else model


def settle(name: str | os.PathLike[str], config: RecurrentConfig | None, where: dict[str, Any]) -> RecurrentConfig:
    """Return the configuration of a checkpoint with the architecture that its tensors show.

    A file that names its architecture is believed. Of the published ones few do, and all of them name the same
    configuration class, so the tensors decide: only Huginn's blocks have a third norm.
    """
    fields, _ = RecurrentConfig.get_config_dict(name, **where)
    shown = fields.get("architecture") or architecture_in(fields.get("auto_map")) or architecture_of(name, where)
    if config is not None and shown in (None, config.architecture):
        return config
    fresh = RecurrentConfig.from_dict({**fields, "architecture": shown})
    if config is None:
        return fresh
    # Read without its tensors, as AutoConfig does: correct what follows from the architecture, keep the rest.
    config = copy.deepcopy(config)
    for field in ("architecture", "qk_bias", "tie_embeddings", "embed_scale", "init_values"):
        setattr(config, field, getattr(fresh, field))
    return config


def architecture_of(name: str | os.PathLike[str], where: dict[str, Any]) -> Architecture | None:
    """Return the architecture of a safetensors checkpoint by its tensor names; None where there is none to read."""
    names = _tensor_names(name, where)
    if not names:
        return None
    return "huginn" if any(".norm_3." in tensor for tensor in names) else "llama"


def _tensor_names(name: str | os.PathLike[str], where: dict[str, Any]) -> list[str]:
    quietly = {**where, "_raise_exceptions_for_missing_entries": False}
    if index := cached_file(name, SAFE_WEIGHTS_INDEX_NAME, **quietly):
        with open(index, encoding="utf-8") as file:
            return list(json.load(file)["weight_map"])
    if single := cached_file(name, SAFE_WEIGHTS_NAME, **quietly):
        with safe_open(single, framework="pt") as file:
            return list(file.keys())
    return []
