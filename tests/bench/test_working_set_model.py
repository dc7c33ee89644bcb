"""The bench of whole blocks and hosts, at small sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from routelab.bench.working_set_model import bench_block, bench_memory, block_table, host_supports, memory_table
from routelab.errors import HostError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM

SMALL = {
    "architecture": "huginn",
    "n_embd": 32,
    "n_heads": 2,
    "intermediate_size": 48,
    "n_layers_in_prelude": 1,
    "n_layers_in_recurrent_block": 2,
    "n_layers_in_coda": 1,
    "vocab_size": 1280,
    "padding_multiple": 64,
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("recurrent")
    torch.manual_seed(0)
    RecurrentForCausalLM(RecurrentConfig(**SMALL)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(TOKENIZER).save_pretrained(folder)
    return str(folder)


def test_a_block_is_timed_whole_and_its_attention_alone() -> None:
    result = bench_block(256, block_size=32, passes=2, config=RecurrentConfig(**SMALL))
    assert result["speedup"]["median"] > 0
    table = block_table(result)
    assert [row[0] for row in table.rows] == ["block", "attention"]


def test_supports_of_a_host_fit_any_length(host: str) -> None:
    supports = host_supports(host, heads=3)
    for length in (256, 1500):
        found = supports(length, 32)
        assert found.shape == (3, -(-length // 32), -(-length // 32))
        assert found.diagonal(dim1=1, dim2=2).all()
        assert not found.triu(1).any()


def test_memory_counts_both_forms(host: str) -> None:
    result = bench_memory(host, 256, num_steps=14)
    assert min(result["bytes"].values()) > 0
    assert len(memory_table(result).rows[0]) == 3
    with pytest.raises(HostError, match="no recurrent core"):
        bench_memory("mini-dense", 256)
