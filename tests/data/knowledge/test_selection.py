"""The draw of an experiment's tasks, and its split."""

from __future__ import annotations

import pytest

from routelab.data.knowledge import Knowledge, Task, Template, fictional, select, split
from routelab.errors import DataError


@pytest.fixture(scope="module")
def world() -> Knowledge:
    return fictional(12, templates=5, pairs=30)


def test_a_selection_has_the_sizes_asked_for(world: Knowledge) -> None:
    chosen = select(world, 4, 3, 20, seed=1)
    assert [(len(task.templates), len(task.pairs)) for task in chosen.tasks] == [(3, 20)] * 4
    by_name = {task.name: task for task in world.tasks}
    for task in chosen.tasks:
        assert set(task.templates) <= set(by_name[task.name].templates)
        assert set(task.pairs) <= set(by_name[task.name].pairs)


def test_fewer_tasks_are_the_beginning_of_more(world: Knowledge) -> None:
    assert select(world, 4, 3, 20, seed=1).tasks == select(world, 9, 3, 20, seed=1).tasks[:4]
    assert select(world, 4, 3, 20, seed=1) != select(world, 4, 3, 20, seed=2)


def test_small_tasks_are_passed_over(world: Knowledge) -> None:
    small = Task("small", (Template.parse("⋆1 ⋆2"),), (("a", "b"),))
    mixed = Knowledge((small, *world.tasks))
    assert "small" not in {task.name for task in select(mixed, 12, 2, 1, seed=0).tasks}
    with pytest.raises(DataError, match="13 tasks with 2 templates and 1 pairs are asked for; 12 of 13"):
        select(mixed, 13, 2, 1, seed=0)
    with pytest.raises(DataError, match="at least 1 of its pairs"):
        select(mixed, 1, 1, 0, seed=0)


def test_a_fifth_is_held_out(world: Knowledge) -> None:
    train, test = split(world, seed=0)
    assert (len(train), len(test)) == (1440, 360)
    assert split(world, seed=1)[1] != test


def test_a_sentence_of_two_tasks_is_on_one_side() -> None:
    templates = tuple(map(Template.parse, ("⋆1 in ⋆2", "⋆1 at ⋆2", "⋆1 by ⋆2")))
    pairs = tuple((f"a{i}", f"b{i}") for i in range(10))
    knowledge = Knowledge(tuple(Task(name, templates, pairs) for name in ("one", "two")))
    train, test = split(knowledge, seed=0, test_fraction=0.5)
    assert len(test) == 30
    assert not {sentence.words for sentence in train} & {sentence.words for sentence in test}


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_a_fraction_out_of_range_is_refused(world: Knowledge, fraction: float) -> None:
    with pytest.raises(DataError, match=r"test_fraction lies in \[0, 1\)"):
        split(world, 0, fraction)


def test_nothing_to_hold_out_is_said() -> None:
    with pytest.raises(DataError, match="no sentence can be held out"):
        split(Knowledge((Task("one", (Template.parse("⋆1 ⋆2"),), (("a", "b"), ("c", "d"), ("e", "f"))),)), seed=0)
    assert split(fictional(1, 1, 3), 0, 0.0)[1] == []
