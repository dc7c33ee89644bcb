"""Plain checkpoints give the attached model's logits, in a process without this library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.errors import CheckpointError, ConfigError, HostError
from routelab.methods.pathlock.export import export
from routelab.methods.pathlock.tokens import register_control_tokens

IDS = torch.arange(3, 23).reshape(2, 10)
ALONE = """
import sys
sys.modules["routelab"] = None
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder, ids, logits in zip(*[iter(sys.argv[1:])] * 3):
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        assert torch.equal(model(load_file(ids)["ids"]).logits, load_file(logits)["logits"]), folder
    chat = [{"role": "user", "content": "a"}]
    text = AutoTokenizer.from_pretrained(folder).apply_chat_template(chat, tokenize=False, enable_thinking=True)
    assert "a /think" in text, text
print("equal")
"""


@torch.no_grad()
def test_both_modes_elsewhere(
    make_dense: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerBase, tell_apart: Any, tmp_path: Path
) -> None:
    arguments = []
    for family in ("qwen3", "phi3"):  # tied embeddings; fused gate and up
        model = make_dense(family)
        model.generation_config = GenerationConfig(temperature=0.7, do_sample=True, eos_token_id=2)
        routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
        tell_apart(model)
        folders = export(model, tmp_path / family, max_shard_size="40KB")
        assert list(folders) == ["no_think", "think"]
        for mode, folder in enumerate(folders.values()):
            files = (tmp_path / f"{family}-ids", tmp_path / f"{family}-{mode}")
            save_file({"ids": IDS}, files[0])
            save_file({"logits": model(IDS, routing_index=[mode] * 2).logits}, files[1])
            arguments += [folder, *files]
            index = json.loads((folder / "model.safetensors.index.json").read_text())
            assert index["metadata"]["total_size"] == 4 * sum(p.numel() for p in model.parameters()) - 4 * sum(
                p.numel() for _, mlp in routelab.attached(model)[0].mlps() for p in mlp.think.parameters()
            )
            assert len(set(index["weight_map"].values())) > 3
            config = json.loads((folder / "config.json").read_text())
            assert config["architectures"] == [type(make_dense(family)).__name__]
            assert GenerationConfig.from_pretrained(folder).temperature == 0.7
        shared = [file for file in folders["think"].glob("*.safetensors") if file.stat().st_nlink == 2]
        assert shared
        assert all(file.samefile(folders["no_think"] / file.name) for file in shared)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "equal\n", done.stderr


@torch.no_grad()
def test_one_mode(locked: PreTrainedModel, tmp_path: Path) -> None:
    for parameter in locked.parameters():  # not the buffers: a loaded model keeps its rotary frequencies in float32
        parameter.data = parameter.data.bfloat16()
    (folder,) = export(locked, tmp_path / "think", mode="think").values()
    assert folder == tmp_path / "think"
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded(IDS).logits, locked(IDS, routing_index=[1, 1]).logits)
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(CheckpointError, match="exists"):
        export(locked, folder)
    with pytest.raises(ConfigError, match="unknown mode"):
        export(locked, tmp_path / "x", mode="thinking")
    with pytest.raises(HostError, match="no path-locked experts"):
        export(loaded, tmp_path / "x")


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_registered_words(
    make_dense: Callable[..., PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
    tied: bool,
    chat: Any,
) -> None:
    model = make_dense("llama", tie_word_embeddings=tied)
    size, before = len(tokenizer), model(IDS).logits
    pieces = tokenizer("/no_think", add_special_tokens=False)["input_ids"]
    assert register_control_tokens(model, tokenizer) == 2
    assert register_control_tokens(model, tokenizer) == 0
    assert model.get_input_embeddings().num_embeddings == len(tokenizer) == size + 2
    assert (model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()) == tied
    token = tokenizer.convert_tokens_to_ids("/no_think")
    for table in (model.lm_head.weight, model.model.embed_tokens.weight):
        torch.testing.assert_close(table[token], table[pieces].mean(0))
    torch.testing.assert_close(model(IDS).logits[..., :size], before)
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    text = chat(tokenizer, "a /no_think")
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    assert token in ids
    assert torch.equal(model(ids).logits, model(ids, routing_index=[0]).logits)
    with pytest.raises(HostError, match="before attaching"):
        register_control_tokens(model, tokenizer)
    (folder,) = export(model, tmp_path / "no_think", mode="no_think").values()
    assert AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"] == ids[0].tolist()
    assert torch.equal(AutoModelForCausalLM.from_pretrained(folder)(ids).logits, model(ids).logits)


@torch.no_grad()
def test_spare_rows_are_used_and_never_cut(
    make_dense: Callable[..., PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> None:
    model = make_dense("llama", vocab_size=len(tokenizer) + 10)
    weight = model.model.embed_tokens.weight
    register_control_tokens(model, tokenizer)
    assert model.model.embed_tokens.weight is weight
