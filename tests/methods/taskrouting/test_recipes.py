"""The shipped recipes of task routing: what their arms match, and that the paper's size validates offline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from routelab.corpus import training_rows
from routelab.dryrun import dry_run
from routelab.errors import ConfigError, RecipeError
from routelab.recipe import DataSpec, load_recipe, parse_recipe, recipe_yaml
from routelab.report.alignment import HOST, alignment_csv
from routelab.report.html import report_run
from routelab.run import run_recipe
from routelab.rundir import RunDirectory


def test_olmoe_validates_offline() -> None:
    check = dry_run(load_recipe("paper/taskrouting-olmoe"))
    assert (check.family, check.steps, check.runs) == ("olmoe", 85, 9)
    # All arms train the same: W_r [64, 2048] of 16 layers.
    assert {arm.trainable_parameters for arm in check.arms} == {16 * 64 * 2048}
    assert {arm.new_parameters for arm in check.arms} == {0}
    assert [data.rows for data in check.data] == [29000] * 3


def test_mini_validates_and_round_trips() -> None:
    recipe = load_recipe("mini/taskrouting-moe")
    assert parse_recipe(yaml.safe_load(recipe_yaml(recipe)), "again") == recipe
    tasks = list(recipe.arms["task-router"][0].config.tasks)
    assert [spec.task for spec in recipe.data] == tasks == [spec.task for spec in recipe.evaluate]
    assert {arm.trainable_parameters for arm in dry_run(recipe).arms} == {6 * 16 * 128}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("study=[alignmnt]", "study.0"),
        ("data.0.task=''", "data.0.task"),
        ("arms.task-router.0.tasks=[]", "task_router needs tasks"),
        ("arms.task-router.0.experts=[0]", "leave experts_per_task out"),
        ("arms.ce-only=[{method: taskrouting, task_router: 0.0}]", "that is routing_only"),
    ],
)
def test_bad_values_are_named(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        load_recipe("mini/taskrouting-moe", [override])


def test_experts_that_do_not_exist_are_named_before_anything_runs() -> None:
    overrides = ["arms.task-router.0.experts_per_task=null", "arms.task-router.0.experts=[0, 1, 16]"]
    with pytest.raises(ConfigError, match="sends task 2 to expert 16; there are experts 0 to 15"):
        dry_run(load_recipe("mini/taskrouting-moe", overrides))


def test_rows_take_their_task_from_the_source_or_keep_their_own(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [{"messages": chat, "task": "own"}, {"messages": chat}]))
    assert [row.get("task") for row in training_rows(DataSpec(source=str(path)))] == ["own", None]
    assert [row["task"] for row in training_rows(DataSpec(source=str(path), task="given"))] == ["given", "given"]


def test_a_run_reports_alignment(host: Path, tmp_path: Path) -> None:
    """The mini recipe, smaller, on a tiny host: before and after, figure, table and data."""
    overrides = [
        f"host.name={host}",
        "seeds=[0]",
        "arms={task-router: [{method: taskrouting, tasks: [mini-arithmetic, mini-facts, mini-paragraphs]}], "
        "ce-only: [{method: routing_only}]}",
        "train.steps=4",
        "train.learning_rate=0.05",
        *(f"data.{i}.limit=6" for i in range(3)),
        *(f"evaluate.{i}.limit=3" for i in range(3)),
        "evaluate.0.max_new_tokens=4",
    ]
    recipe = load_recipe("mini/taskrouting-moe", overrides)
    run = RunDirectory.open(tmp_path / "run", recipe, resume=False)
    run_recipe(recipe, run, command="a test")
    results = json.loads(run.results.read_text())
    study = results["alignment"]
    assert list(study["arms"]) == list(recipe.arms)
    assert study["arms"]["task-router"]["0"]["nmi"] > study["host"]["nmi"]
    assert results["same_batches"]
    page, written = report_run(run.path)
    assert {"alignment.png", "alignment.svg", "alignment.csv"} <= {path.name for path in written}
    table = next(table for table in page.tables if table.title == "Task-expert alignment")
    assert [row[0] for row in table.rows] == [HOST, *recipe.arms]
    # Header; three models, two layers, three tasks, four experts.
    assert len(alignment_csv(results).splitlines()) == 1 + 3 * 2 * 3 * 4
