"""One way in for every host: a shipped mini, SmolLM2, a directory, or a hub name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import routelab.hosts.recurrent  # noqa: F401 (makes its classes known to the Auto classes)
from routelab.errors import CheckpointError, HostError, RoutelabError, closest
from routelab.hosts.minis import available, load_mini
from routelab.hosts.smollm2 import load_smollm2

SMOLLM2 = "smollm2-135m"


def load_host(
    name: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    trust_remote_code: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the causal language model ``name`` and its tokenizer, in evaluation mode.

    ``name`` is a shipped mini (``"mini-moe"``), ``"smollm2-135m"``, a directory with a ``config.json``, or a hub name
    ``"owner/model"``. ``dtype=None`` keeps the dtype of the checkpoint. ``trust_remote_code`` is passed on as given
    and never switched on here.

    Raises:
        HostError: no such name or directory, a model that needs its own code without ``trust_remote_code``, a model
            without a tokenizer, or a hub that cannot be reached.
        CheckpointError: the directory's weights are missing or damaged.
        MissingPackageError: ``smollm2-135m`` without its package.
    """
    text = os.fspath(name)
    if text == SMOLLM2:
        return load_smollm2(dtype=dtype)
    if text in available():
        return load_mini(text, dtype=dtype)
    if Path(text).is_dir():
        return _load_directory(Path(text), dtype, trust_remote_code)
    if _looks_like_path(text):
        raise HostError(f"there is no directory {text!r}")
    if text.count("/") != 1:
        hint = closest(text, [*available(), SMOLLM2])
        raise HostError(f"unknown host {text!r}{hint}; or give a directory, or a hub name 'owner/model'")
    return _load_pretrained(text, dtype, trust_remote_code)


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "~", os.sep)) or text.count("/") > 1 or Path(text).exists()


def _load_directory(
    directory: Path, dtype: torch.dtype | None, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    config = directory / "config.json"
    if not config.is_file():
        if (directory / "routing.json").is_file():
            raise HostError(f"{str(directory)!r} holds a saved routing, not a host; load it with routelab.load")
        raise HostError(f"{str(directory)!r} has no config.json, so it is not a model directory")
    try:
        json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{config} is not valid JSON: {error}") from error
    return _load_pretrained(str(directory), dtype, trust_remote_code)


def _load_pretrained(
    name: str, dtype: torch.dtype | None, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    try:
        # The configuration first: an unreachable hub then fails on one file, not on each the model might have.
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        model = AutoModelForCausalLM.from_pretrained(
            name, config=config, dtype="auto" if dtype is None else dtype, trust_remote_code=trust_remote_code
        )
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    except SafetensorError as error:
        raise CheckpointError(f"the weights of {name!r} are damaged or cut short: {error}") from error
    except RoutelabError:
        raise
    except (OSError, ValueError) as error:
        raise _explain(name, error) from error
    return model, tokenizer


def _explain(name: str, error: Exception) -> HostError | CheckpointError:
    """Turn what transformers raised into an error of this package that says what to do."""
    said = " ".join(str(error).split())
    if "trust_remote_code" in said:
        return HostError(
            f"{name!r} brings its own Python code, which is run only when you ask for it: "
            "read that code, then pass trust_remote_code=True (--trust-remote-code)"
        )
    if Path(name).is_dir():
        if "no file named" in said:
            return CheckpointError(f"{name!r} has a config.json but no weights: {said}")
        return HostError(f"cannot load the host in {name!r}: {said}")
    return HostError(f"cannot load {name!r} from the model hub (is it reachable, and the name right?): {said}")
