"""A recipe is read strictly, overridden by key path, and goes through YAML unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from routelab.errors import RecipeError
from routelab.methods.aar.config import AARConfig
from routelab.recipe import (
    first_difference,
    load_recipe,
    parse_recipe,
    recipe_path,
    recipe_values,
    recipe_yaml,
    shipped_recipes,
)

TEXT = """
name: small
host: {name: mini-moe, dtype: float32}
arms:
  aar: [{method: aar, layers: [1, 2], window: 8, gate_scale_init: 1e-3}]
  control: [{method: routing_only}]
control: control
seeds: [3, 5]
data: [{source: mini-arithmetic, limit: 20, options: {steps: [2, 3]}}]
train: {steps: 4, learning_rate: 1e-3}
evaluate: [{task: mini-arithmetic, limit: 6}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_values_are_typed(file: Path) -> None:
    recipe = load_recipe(file)
    assert recipe.arms["aar"][0].config == AARConfig(layers=(1, 2), window=8, gate_scale_init=0.001)
    assert recipe.train.learning_rate == 0.001
    assert recipe.seeds == (3, 5)
    assert recipe.data[0].options == {"steps": (2, 3)}


def test_resolved_recipe_round_trips_through_yaml(file: Path) -> None:
    recipe = load_recipe(file)
    text = recipe_yaml(recipe)
    again = parse_recipe(yaml.safe_load(text), "again")
    assert again == recipe
    assert recipe_yaml(again) == text
    assert "warmup_ratio: 0.03" in text, "defaults are written out"


def test_overrides(file: Path) -> None:
    recipe = load_recipe(
        file,
        ["train.learning_rate=5e-4", "arms.aar.0.window=16", "seeds=[1]", "evaluate.0.limit=2", "train.packing=true"],
    )
    assert (recipe.train.learning_rate, recipe.train.packing) == (5e-4, True)
    assert recipe.arms["aar"][0].config.window == 16
    assert (recipe.seeds, recipe.evaluate[0].limit) == ((1,), 2)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trian.steps=4", "unknown key 'trian'; did you mean 'train'?"),
        ("train.step=4", "unknown key 'train.step'; did you mean 'steps'?"),
        ("arms.aar.0.windw=4", "unknown key 'arms.aar.0.windw'; did you mean 'window'?"),
        ("arms.aar.0.window=0", "arms.aar.0: window must be an integer of at least 1"),
        ("arms.aar.0.method=arr", "arms.aar.0.method: no method is called 'arr'; did you mean 'aar'?"),
        ("arms.aar=[]", "arms.aar has no method"),
        ("arms.aar.0.method=[1]", "arms.aar.0.method: no method is called [1]"),
        ("arms.a$b^$=[{method: routing_only}]", "arms: 'a$b^$' cannot be an arm's name"),
        ("arms.-x=[{method: routing_only}]", "cannot be an arm's name"),
        ("arms.a/b=[{method: routing_only}]", "cannot be an arm's name"),
        ("evaluate.0.temperature=.inf", "evaluate.0.temperature: Input should be a finite number"),
        ("evaluate.0.batch_size=true", "evaluate.0.batch_size: Input should be a valid integer"),
        ("train.batch_size=true", "train: batch_size: Input should be a valid integer"),
        ("data.0.limit=true", "data.0.limit: Input should be a valid integer"),
        ("seeds=[true]", "seeds.0: Input should be a valid integer"),
        ("seeds=[-1]", "seeds.0: Input should be greater than or equal to 0"),
        ("seeds=[4294967296]", "seeds.0: Input should be less than 4294967296"),
        ("arms.base=[{method: routing_only}]", "'base' cannot be a folder"),
        ("control=aaar", "control: no arm is called 'aaar'; did you mean 'aar'?"),
        ("host.dtype=int8", "host.dtype: Input should be 'float32', 'bfloat16' or 'float16'"),
        ("train.steps=null", "train: the budget needs exactly one of"),
        ("train.learning_rate=fast", "train: learning_rate: Input should be a valid number"),
        ("data=[]", "data:"),
        ("data.7.limit=1", "data has 1 entries"),
        ("seeds=[1,1]", "names a seed twice"),
        ("evaluate=[{task: a}, {task: a}]", "names a task twice"),
        ("train.steps.deep=1", "train.steps is a value"),
        ("train", "write key=value"),
        ("train=[", "is not valid YAML"),
        ("host=mini-moe", "host must be a mapping of keys"),
        ("arms=[1]", "arms must be a mapping of keys"),
    ],
)
def test_what_is_wrong_is_named(file: Path, override: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(file, [override])
    assert said in str(caught.value)


def test_errors_name_the_file_and_missing_keys(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nhost: {dtype: float32}\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"bad\.yaml: host\.name is missing"):
        load_recipe(path)
    path.write_text("- a list\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="must hold a mapping"):
        load_recipe(path)
    path.write_text("name: [\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"bad\.yaml is not valid YAML"):
        load_recipe(path)
    path.write_bytes("name: café".encode("latin-1"))
    with pytest.raises(RecipeError, match=r"bad\.yaml cannot be read as UTF-8 text"):
        load_recipe(path)


def test_unknown_recipe_name_suggests_the_nearest() -> None:
    with pytest.raises(RecipeError, match=r"did you mean 'mini/aar'\?"):
        recipe_path("mini/arr")


def test_first_difference_names_the_key(file: Path) -> None:
    old = recipe_values(load_recipe(file))
    assert first_difference(old, recipe_values(load_recipe(file))) is None
    new = recipe_values(load_recipe(file, ["arms.aar.0.window=9", "train.batch_size=2"]))
    assert first_difference(old, new) == "arms.aar.0.window (8 there, 9 now)"


def test_shipped_recipes_are_there() -> None:
    wanted = {
        "mini/aar",
        "mini/routing-only",
        "real/aar-smollm2",
        "paper/aar-olmoe",
        "paper/aar-qwen15",
        "paper/aar-qwen36",
    }
    assert wanted <= set(shipped_recipes())


def test_reading_a_recipe_is_light() -> None:
    code = "import sys; from routelab.recipe import load_recipe; load_recipe('paper/aar-olmoe'); " \
        "assert not {'torch', 'transformers', 'trl', 'matplotlib'} & set(sys.modules)"  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)
