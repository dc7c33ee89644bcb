"""The harness's own Hugging Face adapter around a Routelab model.

An attached model is an ordinary ``PreTrainedModel``, so requests, batching, scoring and generation stay the harness's;
what is added is the way in (host, routing, method), the depth of a recurrent host, and a record of all of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

import routelab
from routelab.errors import ConfigError, EvaluationError, closest
from routelab.evaluate.gold_loss import calling_with
from routelab.evaluate.result_files import HARNESS_SCHEMA
from routelab.hosts.files import host_files
from routelab.methods.base_config import config_from
from routelab.methods.registry import config_class, untrained

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_DTYPES = ("float32", "bfloat16", "float16")


@register_model("routelab")
class RoutelabLM(HFLM):
    """A host, with or without routing, as a model of the harness: ``--model routelab``.

    Log-likelihoods and generations are those of the harness's ``HFLM`` for the same model. One thing differs: with a
    method attached, rows of one forward all have the same length, because the harness pads on the right and passes no
    mask, which a method that reads whole rows would take for text.

    Started by ``torchrun`` or ``accelerate launch``, the processes share the examples out; the first has the result.

    Args:
        pretrained: the host, by a name that :func:`routelab.load_host` takes, or a model that is loaded already.
        tokenizer: of a loaded model; the host's own, or that of its path-locked experts, by default.
        host: another name for ``pretrained``.
        routing: a directory written by ``routelab.save``, put on the host.
        method, settings: a method that needs no training (``wise``), and its settings as a dictionary.
        num_steps, state_seed: depth and seed of the initial state, of recurrent hosts.
        dtype: ``float32``, ``bfloat16``, ``float16``; the checkpoint's own by default.
        device: the accelerator by default, if there is one.
        options: everything else that ``HFLM`` takes, such as ``max_length`` or ``add_bos_token``.

    Raises:
        ConfigError: no host or two of them, an unknown dtype or option, a device that is not here, or a method that
            must be trained first.
        EvaluationError: ``num_steps`` on a host that does not recur.
    """

    def __init__(
        self,
        pretrained: str | PreTrainedModel | None = None,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        host: str | None = None,
        routing: str | None = None,
        method: str | None = None,
        settings: Mapping[str, Any] | None = None,
        num_steps: int | None = None,
        state_seed: int | None = None,
        dtype: str | None = None,
        device: str | None = None,
        trust_remote_code: bool = False,
        batch_size: int | str = 1,
        max_batch_size: int | None = 64,
        **options: Any,
    ) -> None:
        if (pretrained is None) == (host is None):
            raise ConfigError("name one host: --model_args host=mini-moe (pretrained=... is the same)")
        name = host if pretrained is None else pretrained
        _check_options(options)
        if isinstance(name, str):
            model, own = _load(name, dtype, device, trust_remote_code)
        elif tokenizer is None:
            raise ConfigError("a loaded model needs its tokenizer: RoutelabLM(model, tokenizer=tokenizer)")
        else:
            model, own = name, tokenizer
        if routing is not None:
            routelab.load(routing, model)
        if method is not None:
            routelab.attach(model, _untrained_config(method, settings or {}))
        elif settings:
            raise ConfigError("settings belong to a method, and there is none: method=wise")
        depth = {"num_steps": num_steps, "seed": state_seed}
        self._call = {key: int(value) for key, value in depth.items() if value is not None}
        with calling_with(model, **self._call):
            pass  # refuses, before anything is run, what the model's forward does not take
        self._source = {"host": str(name if isinstance(name, str) else model.config.name_or_path), "routing": routing}
        # The files of a model that was loaded elsewhere may not be what is in it.
        self._files = host_files(name) if isinstance(name, str) else {}
        super().__init__(
            pretrained=model,
            tokenizer=tokenizer or _reading_tokenizer(model) or own,
            batch_size=batch_size,
            max_batch_size=max_batch_size,
            **options,
        )
        if _processes() > 1:
            self.accelerator = Accelerator(cpu=self.device.type == "cpu")
            self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes

    def _model_call(self, inps: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with calling_with(self.model, **self._call):
            logits: torch.Tensor = super()._model_call(inps, *args, **kwargs)
        return logits

    def _model_generate(self, context: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with calling_with(self.model, **self._call):
            ids: torch.Tensor = super()._model_generate(context, *args, **kwargs)
        return ids

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[tuple[float, bool]]:
        if not routelab.attached(self.model):
            return list(super()._loglikelihood_tokens(requests, disable_tqdm, override_bs))
        if self.batch_size == "auto" and override_bs is None:
            override_bs = self._detect_batch_size()  # once, not for every length
        by_length: dict[int, list[int]] = {}
        for index, (_, context, continuation) in enumerate(requests):
            by_length.setdefault(len(context) + len(continuation), []).append(index)
        scored: dict[int, tuple[float, bool]] = {}
        for indices in by_length.values():
            found = super()._loglikelihood_tokens([requests[index] for index in indices], True, override_bs)
            scored.update(zip(indices, found, strict=True))
        return [scored[index] for index in range(len(requests))]

    def get_model_info(self) -> dict[str, Any]:
        """Return what the harness writes into its results as ``config``; ours is ``config["routelab"]``."""
        model = self.model
        ours = {
            "schema": HARNESS_SCHEMA,
            "version": routelab.__version__,
            **self._source,
            "host_files": self._files,
            "routing_sha256": _tensor_hash(self._source["routing"]),
            "shape": _shape(model),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "methods": [
                {"name": each.name, "config": dataclasses.asdict(each.config)} for each in routelab.attached(model)
            ],
            "call": self._call,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": str(self.device),
            "max_length": self.max_length,
            "batch_size": self.batch_size,
            "chat_template_arguments": self.chat_template_args,
            "think_end_token": self.think_end_token,
            "torch": torch.__version__,
        }
        return {"model_num_parameters": ours["parameters"], "model_dtype": ours["dtype"], "routelab": ours}


def _load(
    name: str, dtype: str | None, device: str | None, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if dtype in (None, "auto"):
        kind = None
    elif dtype in _DTYPES:
        kind = getattr(torch, dtype)
    else:
        raise ConfigError(f"dtype {dtype!r} is none of the usual ones{closest(str(dtype), _DTYPES)}")
    model, tokenizer = routelab.load_host(name, dtype=kind, trust_remote_code=trust_remote_code)
    return model.to(_place(device)).eval(), tokenizer


def _place(device: str | None) -> Any:
    """Return where the model goes: the accelerator of this process, if there is one, unless a place is named."""
    if device in (None, "cuda") and torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"the device {device!r} is not here: torch finds no CUDA; use --device cpu")
    return device or "cpu"


def _processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _check_options(options: Mapping[str, Any]) -> None:
    known = {
        "add_bos_token",
        "chat_template_args",
        "enable_thinking",
        "logits_cache",
        "max_length",
        "mixed_precision_dtype",
        "prefix_token_id",
        "softmax_dtype",
        "think_end_token",
        "truncation",
    }
    own = {"host", "pretrained", "routing", "method", "settings", "num_steps", "state_seed", "dtype", "device"}
    for option in options:
        if option not in known:
            raise ConfigError(f"--model routelab takes no argument {option!r}{closest(option, known | own)}")


def _untrained_config(name: str, settings: Mapping[str, Any]) -> Any:
    cls = config_class(name)
    if name not in untrained():
        raise ConfigError(
            f"{name} must be trained first, then routing=... puts it on; untrained: {', '.join(untrained())}"
        )
    return config_from(cls, settings, f"settings of {name}")


def _reading_tokenizer(model: PreTrainedModel) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer that a method saved, whose chat template knows its modes."""
    return next((each.tokenizer for each in routelab.attached(model) if each.tokenizer is not None), None)


def _tensor_hash(routing: str | None) -> str | None:
    if routing is None:
        return None
    try:
        return str(json.loads((Path(routing) / "routing.json").read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError) as error:
        raise EvaluationError(f"the routing that was loaded from {routing} cannot be read again: {error!r}") from error


def _shape(model: PreTrainedModel) -> dict[str, int | str]:
    """Return what tells hosts apart beside their names, and what no routing changes."""
    config = model.config
    return {
        "family": config.model_type,
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "vocabulary": config.vocab_size,
    }
