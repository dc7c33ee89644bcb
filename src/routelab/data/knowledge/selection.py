"""Draws from a knowledge: the tasks of an experiment, and the sentences held out for its test."""

from __future__ import annotations

import random
from collections import Counter

from routelab.data.knowledge.language import Knowledge, Sentence, Task
from routelab.errors import DataError


def select(knowledge: Knowledge, *, tasks: int, templates: int, pairs: int, seed: int) -> Knowledge:
    """Draw ``tasks`` tasks of at least that many templates and pairs, and of each exactly that many.

    The first tasks of a larger draw with the same seed are those of a smaller one.

    Raises:
        DataError: fewer tasks are large enough.
    """
    fit = [task for task in knowledge.tasks if len(task.templates) >= templates and len(task.pairs) >= pairs]
    if len(fit) < tasks:
        raise DataError(
            f"{tasks} tasks with {templates} templates and {pairs} pairs are asked for; "
            f"{len(fit)} of {len(knowledge.tasks)} are that large"
        )
    order = random.Random(f"tasks {seed}").sample(fit, len(fit))
    return Knowledge(tuple(_part(task, templates, pairs, seed) for task in order[:tasks]))


def _part(task: Task, templates: int, pairs: int, seed: int) -> Task:
    rng = random.Random(f"{task.name} {seed}")
    kept = tuple(rng.sample(task.templates, templates))
    return Task(task.name, kept, tuple(rng.sample(task.pairs, pairs)))


def split(knowledge: Knowledge, seed: int, test_fraction: float = 0.2) -> tuple[list[Sentence], list[Sentence]]:
    """Split the sentences into training and test.

    A sentence that several tasks share stays on one side. Every pair of a task and every template of a task keeps a
    sentence in training, so the test asks for what was taught in other words; where that leaves fewer sentences to hold
    out than ``test_fraction``, fewer are held out.

    Raises:
        DataError: a fraction outside [0, 1), or nothing can be held out.
    """
    if not 0 <= test_fraction < 1:
        raise DataError(f"test_fraction must be in [0, 1), not {test_fraction}")
    groups: dict[tuple[str, ...], list[Sentence]] = {}
    for sentence in knowledge.sentences():
        groups.setdefault(sentence.words, []).append(sentence)
    left = Counter(part for group in groups.values() for sentence in group for part in _parts(sentence))
    order = list(groups.values())
    random.Random(f"split {seed}").shuffle(order)
    wanted = round(test_fraction * sum(map(len, order)))
    test: list[Sentence] = []
    train: list[Sentence] = []
    for group in order:
        parts = Counter(part for sentence in group for part in _parts(sentence))
        if len(test) + len(group) <= wanted and all(left[part] > count for part, count in parts.items()):
            left -= parts
            test += group
        else:
            train += group
    if wanted and not test:
        raise DataError("no sentence can be held out: every one is the only one of its pair or of its template")
    return train, test


def _parts(sentence: Sentence) -> tuple[tuple[int, str, int], tuple[int, str, int]]:
    return (sentence.task, "pair", sentence.pair), (sentence.task, "template", sentence.template)
