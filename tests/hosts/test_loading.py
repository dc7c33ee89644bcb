import json
import shutil
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from routelab.errors import CheckpointError, HostError
from routelab.hosts.loading import load_host
from routelab.hosts.minis import available
from routelab.hosts.minis.loader import TOKENIZER


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny bfloat16 Llama with the tokenizer of the minis."""
    directory = tmp_path_factory.mktemp("tiny-llama")
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture
def broken(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to damage."""
    return Path(shutil.copytree(checkpoint, tmp_path / "broken"))


@pytest.mark.parametrize("name", available())
def test_every_mini_loads(name: str) -> None:
    model, tokenizer = load_host(name)
    assert not model.training
    assert model.config.vocab_size >= len(tokenizer)


def test_a_directory_loads_as_string_or_path_in_its_own_dtype(checkpoint: Path) -> None:
    model, tokenizer = load_host(checkpoint)
    assert isinstance(model, LlamaForCausalLM)
    assert model.dtype == torch.bfloat16
    assert not model.training
    assert tokenizer("three")["input_ids"] == load_host(str(checkpoint), dtype=torch.float32)[1]("three")["input_ids"]


def test_a_dtype_can_be_asked_for(checkpoint: Path) -> None:
    assert load_host(checkpoint, dtype=torch.float32)[0].dtype == torch.float32


@pytest.mark.parametrize(("name", "meant"), [("mini-mo", "mini-moe"), ("smollm2-135", "smollm2-135m")])
def test_a_misspelt_name_gets_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(HostError, match=rf"unknown host '{name}'; did you mean '{meant}'\?.*'owner/model'"):
        load_host(name)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c"])
def test_a_directory_that_is_not_there(name: str) -> None:
    with pytest.raises(HostError, match=f"no directory '{name}'"):
        load_host(name)


def test_a_directory_without_config(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"has no config\.json"):
        load_host(tmp_path)


def test_a_saved_routing_is_not_a_host(tmp_path: Path) -> None:
    (tmp_path / "routing.json").write_text("{}")
    with pytest.raises(HostError, match=r"routelab\.load"):
        load_host(tmp_path)


def test_a_damaged_config(broken: Path) -> None:
    (broken / "config.json").write_text('{"model_type": "lla')
    with pytest.raises(CheckpointError, match=r"config\.json is not valid JSON"):
        load_host(broken)


def test_missing_weights(broken: Path) -> None:
    (broken / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        load_host(broken)


@pytest.mark.parametrize("size", [4, 2000])
def test_truncated_weights(broken: Path, size: int) -> None:
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        load_host(broken)


def test_an_architecture_that_transformers_does_not_know(broken: Path) -> None:
    (broken / "config.json").write_text(json.dumps({"model_type": "no_such_model"}))
    with pytest.raises(HostError, match="no_such_model"):
        load_host(broken)


def test_own_code_runs_only_when_asked_for(broken: Path) -> None:
    config = {"model_type": "homemade", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "code.py").write_text("raise SystemExit('the code was run')\n")
    with pytest.raises(HostError, match=r"trust_remote_code=True"):
        load_host(broken)


def test_own_code_is_run_when_asked_for(broken: Path) -> None:
    config = {"model_type": "homemade", "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}}
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "code.py").write_text("raise SystemExit('the code was run')\n")
    with pytest.raises(SystemExit, match="the code was run"):
        load_host(broken, trust_remote_code=True)


def test_a_hub_name_without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HostError, match="cannot load 'no-such-owner/no-such-model' from the model hub"):
        load_host("no-such-owner/no-such-model")
