"""Every shipped recipe parses, round-trips and passes its dry run, offline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from transformers import LlamaConfig, PhimoeConfig

from routelab.afterwards import check_afterwards
from routelab.dryrun import DryRun, arm_table, dry_run, facts
from routelab.dryrun_modes import check_modes
from routelab.errors import DataError, EvaluationError, HostError, LayerError, RecipeError, RoutelabError
from routelab.recipe import (
    ModesRecipe,
    Recipe,
    Table1Recipe,
    WorkingSetsRecipe,
    load_recipe,
    parse_recipe,
    recipe_yaml,
    shipped_recipes,
)
from routelab.recipe.needs import recipe_needs
from routelab.working_sets.check import check_working_sets

PAPER = {
    # recipe: (family, steps, seeds, layers, hidden, experts)
    "paper/aar-olmoe": ("olmoe", 230, 5, 7, 2048, 64),
    "paper/aar-qwen15": ("qwen2_moe", 230, 5, 4, 2048, 60),
    "paper/aar-qwen36": ("qwen3_5_moe_text", 13, 3, 3, 2048, 256),
}


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_parses_and_round_trips(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.title
    assert parse_recipe(yaml.safe_load(recipe_yaml(recipe)), name) == recipe
    assert isinstance(recipe, Table1Recipe | WorkingSetsRecipe) or recipe.train.aux_loss_coef is None


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_says_what_it_needs(name: str) -> None:
    needs = recipe_needs(name)
    assert needs.reproduces
    assert needs.data
    assert re.search(r"\d (?:MiB|GiB)", needs.memory), needs.memory
    assert re.search(r"\d (?:s|min|h|core-hours)\b|not measured", needs.time), needs.time


@pytest.mark.parametrize("name", sorted(PAPER))
def test_paper_recipes_validate_offline(name: str) -> None:
    family, steps, seeds, layers, hidden, experts = PAPER[name]
    recipe = load_recipe(name)
    check = dry_run(recipe)
    by_name = {arm.name: arm for arm in check.arms}
    assert (check.family, check.steps, check.runs) == (family, steps, 2 * seeds)
    # Per layer and view: A [features, E] and G [E, d + features], features 40 and 21.
    assert by_name["aar"].new_parameters == layers * experts * ((40 + 21) + (hidden + 40) + (hidden + 21))
    assert by_name["routing-only"].new_parameters == 0
    assert (
        by_name["aar"].trainable_parameters - by_name["routing-only"].trainable_parameters
        == by_name["aar"].new_parameters
    )
    assert recipe.train.batch_size * recipe.train.grad_accum == 1024
    assert (recipe.train.max_length, recipe.train.learning_rate, recipe.train.warmup_ratio) == (512, 1e-4, 0.03)
    assert "a run fetches allenai/tulu-3-sft-mixture" in check.data[0].found
    _can_be_shown(check)
    shown = dict(facts(check))
    assert {"study acf", "study sinks", "study routing", "study gates"} <= set(shown)
    tasks = ("gsm8k", "bbh", "mmlu", "mmlu_maths", "ifeval", "math500")
    assert all(f"routelab_{task}" in shown["harness"] for task in tasks)


@pytest.mark.parametrize("name", [name for name in sorted(shipped_recipes()) if name.startswith("mini/")])
def test_mini_recipes_validate(name: str) -> None:
    recipe = load_recipe(name)
    if isinstance(recipe, Table1Recipe):
        assert recipe.cells
        return
    if isinstance(recipe, ModesRecipe):
        assert "kept train" in dict(check_modes(recipe))["corpus"]
        return
    if isinstance(recipe, WorkingSetsRecipe):
        assert "mini-paragraphs" in dict(check_working_sets(recipe))["questions"]
        return
    check = dry_run(recipe)
    assert check.data[0].rows
    assert all(arm.trainable_parameters for arm in check.arms)
    _can_be_shown(check)


@pytest.mark.parametrize(
    ("name", "dense", "locked"),
    [
        ("paper/pathlock-qwen3-4b", 4_022_468_096, 6_712_065_536),
        ("paper/pathlock-qwen25-7b", 7_615_616_512, 13_318_821_376),
        ("paper/pathlock-llama31-8b", 8_030_261_248, 13_667_405_824),
    ],
)
def test_path_lock_paper_recipes_validate_offline(name: str, dense: int, locked: int) -> None:
    recipe = load_recipe(name)
    assert isinstance(recipe, ModesRecipe)
    facts_ = dict(check_modes(recipe))
    assert f"{dense:,} parameters" in facts_["host"]
    assert f"{locked:,} parameters" in facts_["path-lock"]
    assert "rows expected" in facts_["corpus"]


@pytest.mark.parametrize(
    ("name", "parameters"), [("paper/wise-huginn", 3_564_976_800), ("paper/wise-recurrent-llama", 1_385_228_288)]
)
def test_wise_paper_recipes_validate_offline(name: str, parameters: int) -> None:
    recipe = load_recipe(name)
    assert isinstance(recipe, WorkingSetsRecipe)
    facts_ = dict(check_working_sets(recipe))
    assert f"{parameters:,} parameters" in facts_["host"]
    assert "rows expected" in facts_["questions"]


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_what_is_looked_at_afterwards_is_known(name: str) -> None:
    recipe = load_recipe(name)
    if isinstance(recipe, Recipe):
        check_afterwards(recipe)


def test_real_recipe_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUTELAB_DATA", raising=False)
    with pytest.raises((DataError, RecipeError), match="ROUTELAB_DATA"):
        dry_run(load_recipe("real/aar-smollm2"))


def test_unknown_host_says_what_to_do() -> None:
    with pytest.raises(
        RecipeError, match=r"no hub model that was fetched before; name its directory, or give host\.config"
    ):
        dry_run(load_recipe("mini/aar", ["host.name=nobody/nothing"]))


@pytest.mark.parametrize(
    ("override", "kind", "said"),
    [
        ("arms.aar.0.layers=[2, 99]", LayerError, "layers 99 do not exist: the host has layers 0 to"),
        ("arms.aar.0.window=0", RecipeError, "window must be an integer of at least 1"),
        ("arms.aar.0.window_source=layer:5", LayerError, "must be a layer with softmax attention that runs before"),
        ("data=[{source: nowhere.jsonl}]", DataError, "nowhere.jsonl"),
        ("data=[{source: mini-arithmetic}]", DataError, "say how many rows with limit"),
        ("data=[{source: mini-arithmetic, limit: 5, options: {stepz: 2}}]", DataError, "stepz"),
        ("studies=[{study: acf, tasks: [gsm9k]}]", EvaluationError, "did you mean 'gsm8k'?"),
        ("harness={tasks: [routelab_gsm9k]}", EvaluationError, "did you mean 'routelab_gsm8k'?"),
        ("host={name: DIR/dense}", HostError, "has no router: its MLPs are dense"),
        ("host={name: DIR/strange}", HostError, "not a supported family"),
    ],
)
def test_bad_input_is_named_before_anything_runs(
    tmp_path: Path, override: str, kind: type[RoutelabError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTELAB_DATA", str(tmp_path))
    small = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": 9,
    }
    LlamaConfig(**small).save_pretrained(tmp_path / "dense")
    PhimoeConfig(**small, num_key_value_heads=2, num_local_experts=2).save_pretrained(tmp_path / "strange")
    with pytest.raises(kind) as caught:
        dry_run(load_recipe("mini/aar", [override.replace("DIR", str(tmp_path))]))
    assert said in str(caught.value)


def test_linear_attention_layer_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(LayerError, match=r"layers 24 cannot be used: .* allowed: 3, 7, 11, 15, 19, 23, 27, 31, 35, 39"):
        dry_run(load_recipe("paper/aar-qwen36", ["arms.aar.0.layers=[23, 24]"]))


def test_steps_by_tokens_are_a_lower_bound() -> None:
    check = dry_run(load_recipe("mini/aar", ["train.steps=null", "train.tokens=100000", "train.batch_size=10"]))
    assert check.steps == 40
    assert check.steps_from.startswith("at least")


def _can_be_shown(check: DryRun) -> None:
    shown = dict(facts(check))
    wanted = {"host", "weights", "gradients and optimizer", "activations", "memory in all", "steps each", "time each"}
    assert wanted <= set(shown)
    assert len(arm_table(check).rows) == len(check.arms)
