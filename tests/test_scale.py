"""docs/scale.md: every launch line names a recipe and options that exist; the FSDP2 configuration is accelerate's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from transformers import OlmoeConfig, OlmoeForCausalLM
from typer.main import get_command

import routelab
from routelab.cli import app
from routelab.recipe import load_recipe
from routelab.train.sharding import layer_classes

PAGE = (Path(__file__).parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")


def lines() -> list[str]:
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", PAGE, re.S | re.M)
    text = "\n".join(blocks).replace("\\\n", " ")
    return sorted(set(re.findall(r"routelab(?:\.cli)? ((?:run|study) [^\n']*)", text)))


@pytest.mark.parametrize("line", lines())
def test_launch_line(line: str) -> None:
    words = shlex.split(line, comments=True)
    command = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
    context = command.make_context("routelab", words)  # refuses unknown options
    assert load_recipe(context.params["recipe"]).name


def test_the_page_has_every_kind_of_launch() -> None:
    assert len(lines()) >= 6
    for word in ("torchrun", "accelerate launch --multi_gpu", "srun", "--nproc-per-node 8", "--backend ray"):
        assert word in PAGE


def test_fsdp2_configuration(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.S | re.M)
    path = tmp_path / "fsdp2.yaml"
    path.write_text(text, encoding="utf-8")
    config = load_config_from_file(str(path))  # refuses unknown keys
    small = OlmoeConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    model = routelab.attach(OlmoeForCausalLM(small), routelab.AARConfig(layers="all", window=4))
    assert [config.fsdp_config["fsdp_transformer_layer_cls_to_wrap"]] == layer_classes(model)
    assert (config.fsdp_config["fsdp_version"], config.distributed_type.value) == (2, "FSDP")
