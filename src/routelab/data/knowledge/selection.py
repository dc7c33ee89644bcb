"""Draws from a knowledge: the tasks of an experiment, and the sentences held out for its test."""

from __future__ import annotations

from collections import Counter

from routelab.data.knowledge.language import Knowledge, Sentence, Task
from routelab.data.mini_world.splits import seeded
from routelab.errors import DataError


def select(knowledge: Knowledge, tasks: int, templates: int, pairs: int, seed: int) -> Knowledge:
    """Draw ``tasks`` of the tasks with enough templates and pairs, and so many templates and pairs of each.

    A draw of fewer tasks with the same seed is the beginning of a draw of more; the templates and pairs of a task
    depend on its name and the seed alone.

    Raises:
        DataError: fewer tasks are large enough, or a number below 1.
    """
    for what, number in (("tasks", tasks), ("templates", templates), ("pairs", pairs)):
        if number < 1:
            raise DataError(f"a selection has at least 1 of its {what}, not {number}")
    fit = [task for task in knowledge.tasks if len(task.templates) >= templates and len(task.pairs) >= pairs]
    if len(fit) < tasks:
        raise DataError(
            f"{tasks} tasks with {templates} templates and {pairs} pairs are asked for; "
            f"{len(fit)} of {len(knowledge.tasks)} are that large"
        )
    order = seeded("select", seed).sample(fit, len(fit))
    return Knowledge(tuple(_part(task, templates, pairs, seed) for task in order[:tasks]))


def _part(task: Task, templates: int, pairs: int, seed: int) -> Task:
    rng = seeded("select", seed, task.name)
    kept = tuple(rng.sample(task.templates, templates))
    return Task(task.name, kept, tuple(rng.sample(task.pairs, pairs)))


def split(knowledge: Knowledge, seed: int, test_fraction: float = 0.2) -> tuple[list[Sentence], list[Sentence]]:
    """Split the sentences at random into training and test.

    Every pair and every template of a task keeps a sentence of that task in training, so that the test asks for what
    was taught, in a combination that was not. Words that are a sentence of several tasks are on one side only. Where
    that leaves less to hold out than ``test_fraction`` of all sentences, the test is smaller.

    Raises:
        DataError: a fraction outside [0, 1), or nothing can be held out.
    """
    if not 0 <= test_fraction < 1:
        raise DataError(f"test_fraction lies in [0, 1), not at {test_fraction}")
    alike: dict[tuple[str, ...], list[Sentence]] = {}
    for sentence in knowledge.sentences():
        alike.setdefault(sentence.words, []).append(sentence)
    groups = list(alike.values())
    seeded("split", seed).shuffle(groups)
    left = Counter(part for group in groups for part in _parts(group))
    wanted = round(test_fraction * sum(map(len, groups)))
    train: list[Sentence] = []
    test: list[Sentence] = []
    for group in groups:
        parts = Counter(_parts(group))
        if len(test) + len(group) <= wanted and all(left[part] > count for part, count in parts.items()):
            left.subtract(parts)
            test += group
        else:
            train += group
    if wanted and not test:
        raise DataError("no sentence can be held out: each is the only one of its pair or of its template")
    return train, test


def _parts(group: list[Sentence]) -> list[tuple[int, str, int]]:
    """What must not vanish from training with ``group``: its pairs and templates, one entry per sentence."""
    pairs = [(sentence.task, "pair", sentence.pair) for sentence in group]
    return pairs + [(sentence.task, "template", sentence.template) for sentence in group]
