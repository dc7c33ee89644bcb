"""Full fine-tuning: everything trains, nothing changes by attaching, and a trained host cannot be given back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import routelab
from routelab.errors import ConflictError, HostError
from routelab.hosts.minis import load_mini
from routelab.methods.full.config import FullConfig
from routelab.methods.pathlock.config import PathLockConfig


def test_everything_trains_and_the_logits_stay(tmp_path: Path) -> None:
    model, _ = load_mini("mini-dense", dtype=torch.float32)
    ids = torch.arange(3, 15)[None]
    before = model(ids).logits
    routelab.attach(model, FullConfig())
    assert torch.equal(model(ids).logits, before)
    (method,) = routelab.attached(model)
    assert method.summary().trainable_parameters == sum(parameter.numel() for parameter in model.parameters())
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.add_(0.01)
    after = model(ids).logits
    with pytest.raises(HostError, match="save_pretrained"):
        routelab.detach(model)
    routelab.save(model, tmp_path)
    again = routelab.load(tmp_path, load_mini("mini-dense", dtype=torch.float32)[0])
    assert torch.equal(again(ids).logits, after)


def test_untrained_it_comes_off_and_path_lock_beside_it_is_refused() -> None:
    model, tokenizer = load_mini("mini-dense", dtype=torch.float32)
    routelab.attach(model, FullConfig())
    with pytest.raises(ConflictError, match="mlp"):
        routelab.attach(model, PathLockConfig(), tokenizer=tokenizer)
    assert routelab.attached(routelab.detach(model)) == []
