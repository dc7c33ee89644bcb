"""FSDP2 on two CPU processes: loss, step and gathered checkpoint are those of one process. Also their script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

import routelab
from routelab import processes
from routelab.errors import HostError, TrainingError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.train.freeze import trainable_parameters
from routelab.train.sharding import layer_classes, shard

SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2}
HOSTS: dict[str, Callable[[], PreTrainedModel]] = {
    "olmoe": lambda: OlmoeForCausalLM(OlmoeConfig(**SIZES, **MOE)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **MOE, head_dim=8, moe_intermediate_size=8)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True)),
}
AAR = routelab.AARConfig(layers="all", window=4)
CASES: dict[str, tuple[str, Any, torch.dtype]] = {
    "olmoe": ("olmoe", AAR, torch.float32),
    "qwen3_moe": ("qwen3_moe", AAR, torch.float32),
    "olmoe, bfloat16": ("olmoe", AAR, torch.bfloat16),
    "llama": ("llama", routelab.PathLockConfig(), torch.float32),
    "qwen3": ("qwen3", routelab.PathLockConfig(), torch.float32),
}
#: Modes of the four rows of each step, by turns for each process: alike, apart, and one expert that rests.
MODES = [[0, 1, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]]


def load(name: str) -> PreTrainedModel:
    family, config, dtype = CASES[name]
    torch.manual_seed(0)
    model = HOSTS[family]().to(dtype).train()
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, local_files_only=True)
    return routelab.attach(model, config, tokenizer=tokenizer)


def steps(model: PreTrainedModel, name: str, settle: Callable[[], None], rank: int, world: int) -> list[float]:
    """Train three steps of four rows, on the rows of one process, and return the losses of its part."""
    # AdamW would turn the rounding of bfloat16 gradients into whole steps of either sign.
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    plain = CASES[name][2] == torch.bfloat16
    optimizer = torch.optim.SGD(trained, lr=1e-2) if plain else torch.optim.AdamW(trained, lr=1e-3, weight_decay=1.0)
    losses = []
    for number, modes in enumerate(MODES):
        ids = torch.randint(32, (4, 6), generator=torch.Generator().manual_seed(number))[rank::world]
        arguments = {"routing_index": torch.tensor(modes)[rank::world]} if "PathLock" in str(CASES[name][1]) else {}
        loss = model(input_ids=ids, labels=ids, **arguments).loss
        loss.backward()
        settle()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    processes.join()
    losses: dict[str, list[float]] = {}
    for name in CASES:
        model = load(name)
        sharded = shard(model)
        assert len({id(unit) for unit in sharded.units}) == len(sharded.units)
        mine = torch.tensor(steps(model, name, sharded.settle, processes.rank(), processes.count()))
        losses[name] = (processes.add_up(mine) / processes.count()).tolist()
        routelab.save(model, folder / name)
    if processes.is_first():
        (folder / "losses.json").write_text(json.dumps(losses))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def two(by_two: Callable[[str, Path], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    by_two(__file__, folder)
    return folder


@pytest.mark.parametrize("name", list(CASES))
def test_two_shards_step_as_one_process(name: str, two: Path, tmp_path: Path) -> None:
    model = load(name)
    tolerance = 1e-4 if CASES[name][2] == torch.float32 else 2e-2
    losses = steps(model, name, lambda: None, 0, 1)
    assert json.loads((two / "losses.json").read_text())[name] == pytest.approx(losses, abs=tolerance)
    routelab.save(model, tmp_path)
    ours, theirs = (load_file(folder / "routing.safetensors") for folder in (tmp_path, two / name))
    assert ours.keys() == theirs.keys()
    for key, tensor in ours.items():
        torch.testing.assert_close(theirs[key], tensor, rtol=0, atol=tolerance)

    # The gathered checkpoint is an ordinary one: it goes on a fresh host in this one process.
    torch.manual_seed(0)
    family, _, dtype = CASES[name]
    fresh = routelab.load(two / name, HOSTS[family]().to(dtype))
    for key, tensor in trainable_parameters(fresh).items():
        torch.testing.assert_close(tensor.detach(), _trained(model)[key], rtol=0, atol=tolerance)


def _trained(model: PreTrainedModel) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in trainable_parameters(model).items()}


def test_layer_classes_are_those_of_the_attached_model() -> None:
    assert layer_classes(HOSTS["llama"]()) == ["LlamaDecoderLayer"]
    assert layer_classes(load("olmoe")) == ["OlmoeDecoderLayer"]
    assert layer_classes(load("llama")) == ["PlannedLayerLlamaDecoderLayer"]


def test_refusals() -> None:
    with pytest.raises(TrainingError, match=r"no processes to shard over: start with torchrun"):
        shard(HOSTS["llama"]())
    with pytest.raises(HostError, match="no language-model head"):
        layer_classes(HOSTS["llama"]().model)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
