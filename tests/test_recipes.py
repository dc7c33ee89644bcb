"""Every shipped recipe parses, round-trips and passes its dry run, offline."""

from __future__ import annotations

import pytest
import yaml

from routelab.dryrun import DryRun, arm_table, dry_run, facts
from routelab.errors import DataError, RecipeError
from routelab.recipe import load_recipe, parse_recipe, recipe_yaml, shipped_recipes

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
    assert recipe.train.aux_loss_coef is None


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


@pytest.mark.parametrize("name", [name for name in sorted(shipped_recipes()) if name.startswith("mini/")])
def test_mini_recipes_validate(name: str) -> None:
    check = dry_run(load_recipe(name))
    assert check.data[0].rows
    assert all(arm.trainable_parameters for arm in check.arms)
    _can_be_shown(check)


def test_real_recipe_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUTELAB_DATA", raising=False)
    with pytest.raises((DataError, RecipeError), match="ROUTELAB_DATA"):
        dry_run(load_recipe("real/aar-smollm2"))


def test_unknown_host_says_what_to_do() -> None:
    with pytest.raises(
        RecipeError, match=r"no hub model that was fetched before; name its directory, or give host\.config"
    ):
        dry_run(load_recipe("mini/aar", ["host.name=nobody/nothing"]))


def test_steps_by_tokens_are_a_lower_bound() -> None:
    check = dry_run(load_recipe("mini/aar", ["train.steps=null", "train.tokens=100000", "train.batch_size=10"]))
    assert check.steps == 40
    assert check.steps_from.startswith("at least")


def _can_be_shown(check: DryRun) -> None:
    shown = dict(facts(check))
    assert {"host", "weights", "optimizer state", "activations", "memory in all", "steps each"} <= set(shown)
    assert len(arm_table(check).rows) == len(check.arms)
