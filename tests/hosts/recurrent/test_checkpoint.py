"""Published checkpoints load unchanged, by whichever sign tells their architecture; damaged ones are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from routelab.errors import CheckpointError
from routelab.hosts.recurrent import RecurrentForCausalLM

HUGINN_MAP = {"AutoModelForCausalLM": "raven_modeling_minimal.RavenForCausalLM"}


def rewrite(folder: Path, **fields: object) -> None:
    """Change fields of ``config.json``; None removes one."""
    file = folder / "config.json"
    config = {**json.loads(file.read_text(encoding="utf-8")), **fields}
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}), encoding="utf-8")


@pytest.fixture
def saved(model: RecurrentForCausalLM, tmp_path: Path) -> Path:
    model.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(61, (2, 5))


def test_golden_directory_loads(golden, tmp_path: Path) -> None:
    shutil.copy(golden.folder / "config.json", tmp_path)
    shutil.copy(golden.folder / "weights.safetensors", tmp_path / "model.safetensors")
    rewrite(tmp_path, model_type="huginn_raven")
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    logits = model(golden.expected["input_ids"], num_steps=4, initial_state=golden.expected["initial_state"]).logits
    torch.testing.assert_close(logits, golden.expected["logits_T4"], atol=1e-3, rtol=0)
    model.save_pretrained(tmp_path / "again")
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == golden.weights.keys()


def test_round_trip(saved: Path, model: RecurrentForCausalLM, ids: torch.Tensor) -> None:
    again = AutoModelForCausalLM.from_pretrained(saved)
    assert type(again) is RecurrentForCausalLM
    assert torch.equal(again(ids, seed=3).logits, model(ids, seed=3).logits)
    tied = model.config.architecture == "huginn"
    assert (again.lm_head.weight is again.transformer.wte.weight) == tied
    assert ("lm_head.weight" in load_file(saved / "model.safetensors")) != tied


@pytest.mark.parametrize("auto_map", [None, HUGINN_MAP], ids=["nothing", "a module that says nothing"])
@pytest.mark.parametrize("automatic", [True, False])
def test_tensors_tell_the_architecture(saved, model, ids, auto_map, automatic: bool) -> None:
    rewrite(saved, architecture=None, auto_map=auto_map, qk_bias=None, embed_scale=None, init_values=None)
    again = (AutoModelForCausalLM if automatic else RecurrentForCausalLM).from_pretrained(saved)
    assert again.config.architecture == model.config.architecture
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_sharded_tensors_tell_the_architecture(saved, model, ids) -> None:
    (saved / "model.safetensors").unlink()
    model.save_pretrained(saved, max_shard_size="20kB")
    rewrite(saved, architecture=None)
    again = RecurrentForCausalLM.from_pretrained(saved)
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_a_changed_configuration_is_kept(saved: Path) -> None:
    config = RecurrentForCausalLM.config_class.from_pretrained(saved)
    config.mean_recurrence = 9
    rewrite(saved, architecture=None)
    assert RecurrentForCausalLM.from_pretrained(saved, config=config).config.mean_recurrence == 9
    assert RecurrentForCausalLM.from_pretrained(saved, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_a_stored_rotation_table_is_ignored(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    save_file({**tensors, "freqs_cis": torch.zeros(1, 64, 1, 4, 2)}, saved / "model.safetensors", {"format": "pt"})
    RecurrentForCausalLM.from_pretrained(saved)


def test_missing_and_unexpected_tensors_are_refused(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    norm = tensors.pop("transformer.core_block.0.norm_1.weight")
    save_file({**tensors, "transformer.extra.weight": norm}, saved / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 missing \(transformer.core_block.0.norm_1.weight\).*1 unexpected"):
        RecurrentForCausalLM.from_pretrained(saved)


def test_the_wrong_architecture_is_refused(saved: Path, model: RecurrentForCausalLM) -> None:
    other = {"huginn": "llama", "llama": "huginn"}[model.config.architecture]
    heads = model.config.n_heads
    rewrite(saved, architecture=other, qk_bias=other == "huginn", num_key_value_heads=heads)
    with pytest.raises(CheckpointError):
        RecurrentForCausalLM.from_pretrained(saved)


def test_another_shape_is_refused(saved: Path) -> None:
    rewrite(saved, intermediate_size=40)
    with pytest.raises(CheckpointError, match=r"do not fit its config\.json"):
        RecurrentForCausalLM.from_pretrained(saved)
