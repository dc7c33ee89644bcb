"""Studies and tasks of the harness in a recipe: what is read, what is refused, and what it becomes as a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routelab.errors import RecipeError
from routelab.recipe import ACFStudy, GatesStudy, HostSpec, Recipe, SinksStudy, load_recipe
from routelab.recipe.inside import STUDIES, parse_studies
from routelab.routing_studies import TITLES, Routed, study_command


def mini(*overrides: str) -> Recipe:
    recipe = load_recipe("mini/aar", overrides)
    assert isinstance(recipe, Recipe)
    return recipe


def test_a_study_is_a_name_or_a_mapping() -> None:
    acf, sinks, gates = parse_studies(
        ["acf", {"study": "sinks", "patch": True, "limit": 3}, {"study": "gates", "tasks": ["mini-facts"]}], "here"
    )
    assert acf == ACFStudy(window=(20, 64, 128), limit=16)
    assert isinstance(sinks, SinksStudy)
    assert (sinks.patch, sinks.limit, sinks.tasks) == (True, 3, ("mini-few-shot",))
    assert gates == GatesStudy(tasks=("mini-facts",), limit=64)
    assert set(STUDIES) == set(TITLES)


def test_without_either_key_nothing_is_looked_at() -> None:
    recipe = mini("studies=[]")
    assert (recipe.studies, recipe.harness) == ((), None)
    assert mini("harness=null").harness is None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("studies=[sink]", "no study called 'sink' of its routing; did you mean 'sinks'?"),
        ("studies=[{limit: 3}]", "studies.0.study is missing"),
        ("studies=acf", "studies must be a list"),
        ("studies=[{study: gates, patch: true}]", "unknown key 'studies.0.patch'; known: limit"),
        ("studies=[{study: acf, limit: 0}]", "studies.0.limit"),
        ("studies=[{study: sinks, layers: [2]}]", "add patch: true"),
        ("studies=[acf, acf]", "names one twice"),
        ("arms={routing-only: [{method: routing_only}]}", "there is no other arm"),
        ("arms.aar=[{method: routing_only}]", "'gates' are those of attention-aware routing"),
        ("harness={task: [routelab_gsm8k]}", "unknown key 'harness.task'; did you mean 'tasks'?"),
        ("harness={tasks: []}", "harness.tasks"),
        ("harness={tasks: [../x.yaml]}", "harness.tasks.0"),
        ("harness={tasks: [a, a]}", "names one twice"),
    ],
)
def test_what_makes_no_sense_is_named(override: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        mini(override)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"study": "acf", "window": [8], "options": {"shots": 2}}, "--window 8 --task mini-few-shot --option shots=2"),
        ({"study": "sinks", "patch": True, "layers": [1]}, "--patch --layer 1 --against b"),
        ({"study": "routing", "compare": False, "tasks": ["mini-facts"]}, "--routing a --task mini-facts"),
        ({"study": "routing", "longest": 40}, "--compare --against b"),
        ({"study": "gates", "limit": 5}, "--limit 5 --out c"),
    ],
)
def test_a_study_of_a_run_is_made_again_by_a_command(row: dict[str, Any], words: str) -> None:
    (spec,) = parse_studies([row], "here")
    routed = Routed(HostSpec("mini-moe", dtype="float32"), Path("a"), Path("b"), lambda path: (None, None))
    command = study_command(spec, routed, Path("c"))
    assert command.startswith(f"routelab study {row['study']} --host mini-moe --dtype float32 --routing a")
    assert words in command
