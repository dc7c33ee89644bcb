"""Against the inputs and outputs of the two public implementations (``ROUTELAB_GOLDEN``)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.engine import running
from routelab.methods.wise.record import block_density

#: condition -> the names of its logits and of its support.
EXPECTED = {
    "wise": ("logits_wise", "support_wise"),
    "static": ("logits_static", "support_static"),
    "mass_matched": ("logits_massmatched", "support_massmatched"),
    "size_matched": ("logits_sizematched", "support_sizematched"),
    "freeze": ("logits_freeze_a", "support_wise"),
    "truncate": ("logits_truncate", None),
    "full": ("logits_T32", None),
}
TOLERANCE = 1e-3


@cache
def golden(folder: Path) -> tuple[RecurrentForCausalLM, dict[str, Tensor], dict[str, object], float]:
    config = json.loads((folder / "config.json").read_text())
    settings, density = config.pop("wise"), config.pop("density")
    config.pop("future_mass")
    model = RecurrentForCausalLM(RecurrentConfig(**config))
    model.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    model.tie_weights()
    return model.eval(), load_file(folder / "expected.safetensors"), settings, density


@pytest.mark.parametrize("name", ["huginn_tiny", "recurrent_llama_tiny"])
@pytest.mark.parametrize("condition", EXPECTED)
@torch.no_grad()
def test_supports_and_logits(golden_root: Path, name: str, condition: str) -> None:
    model, expected, settings, density = golden(golden_root / name)
    logits_name, support_name = EXPECTED[condition]
    config = WISEConfig(condition=condition, **{key: settings[key] for key in settings if key != "num_steps"})
    call = {"num_steps": settings["num_steps"], "initial_state": expected["initial_state"]}
    with running(model, config) as engine:
        logits = model(expected["input_ids"], **call).logits
        assert (logits - expected[logits_name]).abs().max() < TOLERANCE
        if support_name is None:
            return
        support = expected[support_name][:, None]
        assert engine.last is not None
        assert engine.last.supports is not None
        equal = (engine.last.supports == support).all(-1).double().mean()
        assert equal >= 0.99
        if condition == "wise":
            assert block_density(support, engine.last.allowed) == pytest.approx(density)
        with engine.given(support):
            logits = model(expected["input_ids"], **call).logits
        assert (logits - expected[logits_name]).abs().max() < TOLERANCE
