"""Tiny depth-recurrent hosts for the studies of the recurrence, and their golden references."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.study.full_run import Observer

#: What config.json holds beside the shape of the model.
_REFERENCE = ("wise", "density", "future_mass")


@dataclass(frozen=True)
class Golden:
    """A golden host, its reference tensors, and what its config.json says."""

    model: RecurrentForCausalLM
    expected: dict[str, Tensor]
    reference: dict[str, Any]


def golden(folder: Path) -> Golden:
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = RecurrentForCausalLM(RecurrentConfig(**{k: v for k, v in fields.items() if k not in _REFERENCE}))
    missing, unexpected = model.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return Golden(model.eval(), load_file(folder / "expected.safetensors"), {k: fields[k] for k in _REFERENCE})


def tiny(seed: int = 0, **fields: Any) -> RecurrentForCausalLM:
    """A random host whose attention is far from uniform, float64."""
    torch.manual_seed(seed)
    shape = {
        "n_embd": 16, "n_heads": 4, "intermediate_size": 24, "n_layers_in_prelude": 1,
        "n_layers_in_recurrent_block": 2, "n_layers_in_coda": 1, "vocab_size": 64, "padding_multiple": 64,
        "block_size": 64,
    }  # fmt: skip
    model = RecurrentForCausalLM(RecurrentConfig(**{**shape, **fields}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "Wqkv" in name or "q_proj" in name or "k_proj" in name:
                parameter.mul_(6)
    return model.double().eval()


class Keeper(Observer):
    """Keeps every attention matrix: the slow way."""

    def open(self, call: object) -> None:
        self.weights: dict[tuple[int, int], Tensor] = {}
        self.outputs: dict[tuple[int, int], Tensor] = {}

    def note(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
        keys = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        scores = query @ keys.transpose(2, 3) / query.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        self.weights[step, block] = scores.masked_fill(later, -torch.inf).softmax(-1)
        self.outputs[step, block] = output
