"""save and load: exact, small, checked."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

import routelab
from routelab.errors import CheckpointError

MakeHost = Callable[..., PreTrainedModel]
IDS = torch.arange(3, 19).reshape(2, 8)
CONFIGS = [routelab.RoutingOnlyConfig(), routelab.AARConfig(layers=[1, 3], window=5, gate_scale_init=0.5)]


def trained(model: PreTrainedModel, config: object) -> PreTrainedModel:
    routelab.attach(model, config)
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in routelab.attached(model)[0].parameters():
            parameter.add_(torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("config", CONFIGS)
def test_load_gives_bit_identical_logits(make_host: MakeHost, family: str, config: object, tmp_path: Path) -> None:
    model = trained(make_host(family), config)
    routelab.save(model, tmp_path / "routing")
    loaded = routelab.load(tmp_path / "routing", make_host(family))
    assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    assert routelab.attached(loaded)[0].config == config


def test_the_file_holds_only_routing_tensors(make_host: MakeHost, tmp_path: Path) -> None:
    model = trained(make_host("olmoe"), CONFIGS[1])
    routelab.save(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["routing.json", "routing.safetensors"]
    tensors = load_file(tmp_path / "routing.safetensors")
    summary = routelab.attached(model)[0].summary()
    assert sum(tensor.numel() for tensor in tensors.values()) == summary.trainable_parameters
    assert all(name.startswith("aar.layers.") for name in tensors)


def test_a_second_process_loads_from_the_directory_alone(make_host: MakeHost, tmp_path: Path) -> None:
    make_host("olmoe").save_pretrained(tmp_path / "host")
    model = trained(type(make_host("olmoe")).from_pretrained(tmp_path / "host").eval(), CONFIGS[1])
    routelab.save(model, tmp_path / "routing")
    code = (
        "import sys, torch, routelab\n"
        "model = routelab.load(sys.argv[1]).eval()\n"
        "torch.save(model(torch.arange(3, 19).reshape(2, 8)).logits, sys.argv[2])\n"
    )
    arguments = [str(tmp_path / "routing"), str(tmp_path / "logits.pt")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, timeout=180)
    assert torch.equal(torch.load(tmp_path / "logits.pt"), model(IDS).logits)


@pytest.fixture
def saved(make_host: MakeHost, tmp_path: Path) -> Path:
    return routelab.save(trained(make_host("olmoe"), CONFIGS[1]), tmp_path / "routing")


def test_another_shape_is_refused(make_host: MakeHost, saved: Path) -> None:
    with pytest.raises(CheckpointError, match="hidden_size 32, this one has 16"):
        routelab.load(saved, make_host("olmoe", hidden_size=16))
    with pytest.raises(CheckpointError, match="model_type 'olmoe', this one has 'mixtral'"):
        routelab.load(saved, make_host("mixtral"))


def test_damaged_files_are_refused(make_host: MakeHost, saved: Path) -> None:
    model = make_host("olmoe")
    tensors, description = saved / "routing.safetensors", saved / "routing.json"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-10])
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        routelab.load(saved, model)
    tensors.unlink()
    with pytest.raises(CheckpointError, match=r"holds no routing\.safetensors"):
        routelab.load(saved, model)
    values = json.loads(description.read_text())
    description.write_text("{")
    with pytest.raises(CheckpointError, match="is damaged"):
        routelab.load(saved, model)
    description.write_text(json.dumps({**values, "format": 99}))
    with pytest.raises(CheckpointError, match="upgrade routelab"):
        routelab.load(saved, model)
    description.write_text(json.dumps({**values, "methods": []}))
    with pytest.raises(CheckpointError, match="names no method"):
        routelab.load(saved, model)
    description.write_text(json.dumps({**values, "methods": [{"name": "aar"}]}))
    with pytest.raises(CheckpointError, match="is damaged"):
        routelab.load(saved, model)
    with pytest.raises(CheckpointError, match="is it a directory written by"):
        routelab.load(saved.parent, model)
    assert routelab.attached(model) == []


def test_a_tensor_that_is_missing_or_too_many_is_named(make_host: MakeHost, saved: Path) -> None:
    file = saved / "routing.safetensors"
    tensors = load_file(file)
    tensors["aar.layers.1.other"] = tensors.pop("aar.layers.1.router.weight")
    save_file(tensors, file)
    values = json.loads((saved / "routing.json").read_text())
    values["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (saved / "routing.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"missing \['layers.1.router.weight'\], unknown \['layers.1.other'\]"):
        routelab.load(saved, make_host("olmoe"))


def test_a_failed_load_leaves_the_host_as_it_was(make_host: MakeHost, saved: Path) -> None:
    """The configuration is not covered by the hash of the tensors: another window no longer fits them."""
    model = make_host("olmoe")
    before = model(IDS).logits
    description = saved / "routing.json"
    values = json.loads(description.read_text())
    values["methods"][0]["config"]["window"] = 6
    description.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="has shape"):
        routelab.load(saved, model)
    assert routelab.attached(model) == []
    assert torch.equal(model(IDS).logits, before)


def test_what_cannot_be_loaded_or_written_is_said(make_host: MakeHost, saved: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not name its host"):
        routelab.load(saved)
    model = routelab.load(saved, make_host("olmoe"))
    with pytest.raises(CheckpointError, match="detach first"):
        routelab.load(saved, model)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        routelab.save(model, tmp_path / "file")
