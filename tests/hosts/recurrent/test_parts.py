"""A recurrent host's parts, and that the ordinary trainer trains it whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import routelab
from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.errors import HostError
from routelab.hosts.minis import load_mini
from routelab.hosts.minis.loader import TOKENIZER
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.hosts.recurrent.parts import locate_recurrent
from routelab.methods.full.config import FullConfig
from routelab.train import TrainConfig, encode_rows, train


@pytest.mark.parametrize("architecture", ["huginn", "llama"])
def test_full_training_lowers_the_loss(architecture: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(0)
    model = RecurrentForCausalLM(
        RecurrentConfig(
            architecture=architecture,
            n_embd=32,
            n_heads=2,
            intermediate_size=48,
            n_layers_in_prelude=1,
            n_layers_in_recurrent_block=2,
            n_layers_in_coda=1,
            vocab_size=len(tokenizer),
            padding_multiple=64,
            block_size=512,
            mean_recurrence=2,
        )
    )
    assert [layer.mlp for layer in locate_recurrent(model).layers] == ["mlp", "mlp"]
    routelab.attach(model, FullConfig())
    config = TrainConfig(steps=6, batch_size=4, max_length=256, learning_rate=3e-3)
    rows = to_messages(MiniWorld().arithmetic("train", 24), "arithmetic")
    result = train(model, tokenizer, encode_rows(tokenizer, rows, config), config, seed=0, output_dir=tmp_path)
    assert result.steps == 6
    assert result.loss_last < result.loss_first - 0.5


def test_another_host_is_named() -> None:
    with pytest.raises(HostError, match="'qwen3' is no depth-recurrent host"):
        locate_recurrent(load_mini("mini-dense")[0])
