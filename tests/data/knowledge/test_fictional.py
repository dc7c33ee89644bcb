"""The invented world: sizes, shapes of tables, prefixes, and the same facts on every machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from routelab.data.knowledge import OBJECT, SUBJECT, Knowledge, fictional
from routelab.data.knowledge.fictional import OWN, SHARED, WORLD
from routelab.errors import DataError

SHOW = "from routelab.data.knowledge import fictional; print(ascii(fictional(9, 4, 20, 3)))"


def template_prefixes(knowledge: Knowledge) -> list[set[tuple[str, ...]]]:
    """For every task the beginnings of its templates, of which each placeholder is one symbol."""
    return [
        {template.words[:length] for template in task.templates for length in range(1, len(template.words) + 1)}
        for task in knowledge.tasks
    ]


def test_the_largest_world_is_as_large_as_asked() -> None:
    world = fictional(60, templates=8, pairs=200)
    assert [(len(task.templates), len(task.pairs)) for task in world.tasks] == [(8, 200)] * 60
    assert len({task.name for task in world.tasks}) == 60


def test_half_of_the_tables_are_one_to_one() -> None:
    world = fictional(60, pairs=50)
    shapes = sorted(len({object_ for _, object_ in task.pairs}) for task in world.tasks)
    assert shapes[30:] == [50] * 30
    assert shapes[0] > 1
    assert shapes[29] <= 8
    assert all(len({subject for subject, _ in task.pairs}) == 50 for task in world.tasks)


def test_kinds_share_subjects() -> None:
    world = {task.name: {subject for subject, _ in task.pairs} for task in fictional(60, pairs=50).tasks}
    assert world["mayor"] & world["river"]
    assert not world["mayor"] & world["captain"]


@pytest.mark.parametrize("shared", [True, False])
def test_names_are_no_words_and_tasks_share_prefixes_as_asked(shared: bool) -> None:
    world = fictional(60, templates=8, pairs=20, shared_prefixes=shared)
    assert not {name for task in world.tasks for pair in task.pairs for name in pair} & world.words
    prefixes = template_prefixes(world)
    common = [a & b for i, a in enumerate(prefixes) for b in prefixes[:i]]
    assert all(common) if shared else not any(common)


def test_both_placeholders_come_first_somewhere() -> None:
    for patterns in (SHARED, OWN):
        assert {min((SUBJECT, OBJECT), key=pattern.index) for pattern in patterns} == {SUBJECT, OBJECT}


def test_roles_are_different_words() -> None:
    roles = [role for both in WORLD.values() for part in both for role in part.split()]
    assert len(set(roles)) == len(roles) == 60


def test_fewer_tasks_are_the_beginning_of_more() -> None:
    assert fictional(3, 4, 20, 3).tasks == fictional(9, 4, 20, 3).tasks[:3]
    assert fictional(3, 4, 20, 3) != fictional(3, 4, 20, 4)


def test_the_same_facts_in_every_process() -> None:
    for hash_seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == ascii(fictional(9, 4, 20, 3))


def test_the_facts_stay_what_they_are() -> None:
    first = fictional(2, 1, 1).sentences()[0]
    assert " ".join(first.words) == "everyone knows that the saint of Volferfi is Brunvi ."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0,), "1 to 60 tasks, not 0"),
        ((61,), "1 to 60 tasks, not 61"),
        ((1, 9), "1 to 8 templates a task, not 9"),
        ((1, 1, 0), "at least one pair"),
    ],
)
def test_what_is_out_of_range_is_refused(arguments: tuple[int, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        fictional(*arguments)
