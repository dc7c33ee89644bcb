"""A run on hybrid thinking: every arm trained and measured in both modes, resumable, with a page that tells it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from routelab.errors import RecipeError
from routelab.modes import run_modes
from routelab.recipe import ModesRecipe, load_recipe, parse_recipe, recipe_values
from routelab.rundir import RunDirectory, read_json, read_jsonl

SMALL = (
    "seeds=[0]",
    "data.limit=12",
    "data.options={steps: 1, draw: test}",
    "train={steps: 2, batch_size: 2, max_length: 256, learning_rate: 1e-3}",
    "evaluate={task: mini-arithmetic, limit: 4, batch_size: 4, max_new_tokens: 8}",
    "probe=2",
    "crossed=true",
)


@pytest.fixture(scope="module")
def recipe() -> ModesRecipe:
    loaded = load_recipe("mini/pathlock", SMALL)
    assert isinstance(loaded, ModesRecipe)
    return loaded


@pytest.fixture(scope="module")
def finished(recipe: ModesRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modes") / "run"
    run_modes(recipe, RunDirectory.open(folder, recipe, resume=False), command="routelab run mini/pathlock")
    return folder


def test_every_arm_is_measured_in_both_modes(finished: Path, recipe: ModesRecipe) -> None:
    results = read_json(finished / "results.json")
    assert set(results["arms"]) == set(recipe.arms)
    for arm in ("base", *recipe.arms):
        folder = finished / "records" / arm / ("" if arm == "base" else "seed-0")
        for mode in ("think", "no_think"):
            records = read_jsonl(folder / f"{mode}.jsonl")
            assert len(records) == 4
            assert all(
                record["prompt"].rstrip().endswith(f"/{mode}<|im_end|>\n<|im_start|>assistant") for record in records
            )
    crossed = results["arms"]["path-lock"]["crossed"]["0"]
    assert set(crossed) == {"no_think expert", "think expert"}
    own = results["arms"]["path-lock"]["modes"]["0"]
    assert crossed["think expert"]["think"] == own["think"]
    assert crossed["no_think expert"]["no_think"] == own["no_think"]
    assert {(each["arm"], each["mode"]) for each in results["comparisons"]} == {
        (arm, mode) for arm in recipe.arms if arm != "sft" for mode in ("think", "no_think")
    }


def test_arms_have_equal_budgets(finished: Path) -> None:
    arms = read_json(finished / "results.json")["arms"]
    assert {arm: values["train"]["0"]["steps"] for arm, values in arms.items()} == {
        "path-lock": 2, "sft": 2, "sft-two-phase": 2, "think-only": 2, "no_think-only": 2, "average": 0,
    }  # fmt: skip
    assert arms["path-lock"]["trainable_parameters"] > arms["sft"]["trainable_parameters"]


def test_the_page_shows_it(finished: Path) -> None:
    text = (finished / "report.html").read_text(encoding="utf-8")
    assert "Told not to think, path-lock is right in" in text
    assert "gradients of the two modes before training" in text
    assert "control word and expert, crossed" in text
    stems = {path.stem for path in (finished / "figures").iterdir()}
    assert stems == {"leakage", "accuracy", "lengths", "interference"}


def test_a_run_goes_on_where_it_was_cut(finished: Path, recipe: ModesRecipe, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "records/sft/seed-0/leakage.json").unlink()
    said: list[str] = []
    run_modes(recipe, RunDirectory.open(copy, recipe, resume=True), command="again", say=said.append)
    assert said == ["measuring sft, seed 0 in both modes"]
    before, after = (read_json(folder / "results.json") for folder in (finished, copy))
    assert before["arms"] == after["arms"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms": ["path-lok"]}, "did you mean 'path-lock'"),
        ({"control": "plain"}, "control: no arm is called 'plain'"),
        ({"arms": ["sft", "average"]}, "list them too"),
        ({"seeds": [1, 1]}, "names one twice"),
        ({"hybrid": {"pairing": "both"}}, "unknown pairing"),
        ({"hybrid": {"pairng": "same"}}, "unknown key 'hybrid.pairng'"),
        ({"kind": "mode"}, "did you mean 'modes'"),
    ],
)
def test_bad_recipes_are_named(recipe: ModesRecipe, change: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe({**recipe_values(recipe), **change}, "test")


def test_variants_start_and_learn_from_something_else(tmp_path: Path) -> None:
    small = [each for each in SMALL if not each.startswith(("crossed", "data.options"))]
    recipe = load_recipe(
        "mini/pathlock-ablations",
        [
            *small,
            "arms=[path-lock, sft, after-sft, condensed]",
            "variants={after-sft: {arm: path-lock, after: sft}, condensed: {arm: path-lock, data: {source: "
            "mini-arithmetic, limit: 12, options: {steps: 1}, reader: {worked: true}, condense: true}}}",
        ],
    )
    assert isinstance(recipe, ModesRecipe)
    run_modes(recipe, RunDirectory.open(tmp_path / "run", recipe, resume=False), command="test")
    results = read_json(tmp_path / "run" / "results.json")
    assert set(results["arms"]) == {"path-lock", "sft", "after-sft", "condensed"}
    assert set(results["corpus"]) == {"mini-arithmetic", "mini-arithmetic of condensed"}
    saved = {arm: (tmp_path / f"run/routing/{arm}/seed-0/routing.safetensors").read_bytes() for arm in results["arms"]}
    assert saved["after-sft"] != saved["path-lock"]
    assert saved["condensed"] != saved["path-lock"]


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ("{easy: {arm: path-lock}, sft: {arm: path-lock}}", "is an arm of every recipe"),
        ("{easy: {arm: path-lok}}", "unknown arm 'path-lok'; did you mean 'path-lock'"),
        ("{easy: {arm: path-lock, after: nothing}}", "'nothing' is no dense arm that is trained before"),
        ("{easy: {arm: path-lock, after: sft, host: {name: mini-dense}}}", "leave host out"),
        ("{easy: {arm: path-lock}, hard: {arm: path-lock}}", "no arm is called 'hard'"),
    ],
)
def test_bad_variants_are_named(variants: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe("mini/pathlock", ["arms=[sft, easy]", "control=sft", f"variants={variants}"])
