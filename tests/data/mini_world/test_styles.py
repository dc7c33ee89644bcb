from __future__ import annotations

import re

import pytest

from routelab.data import MiniWorld
from routelab.data.mini_world.arithmetic import apply
from routelab.data.mini_world.styles import answer_at_once, think_aloud
from routelab.data.reflection import ReflectiveWords
from routelab.errors import DataError

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def test_every_equation_of_a_thought_is_true_and_the_worked_ones_are_there_in_order() -> None:
    for row in MiniWorld().arithmetic("train", 300, steps=(1, 5), limit=60):
        thought = think_aloud(row)
        equations = EQUATION.findall(thought)
        assert all(apply(int(a), symbol, int(b)) == int(c) for a, symbol, b, c in equations)
        lines = [line for line in thought.splitlines() if EQUATION.fullmatch(line)]
        assert lines == row["answer"].splitlines()[:-1]
        assert len(equations) > len(lines), "the last step at least is checked"
        assert row["gold"] in thought.splitlines()[-1]


def test_thinking_is_reflective_and_the_direct_answer_is_not() -> None:
    words = ReflectiveWords()
    for row in MiniWorld().arithmetic("test", 100, steps=2):
        assert words.count(think_aloud(row)) >= 1
        assert words.count(answer_at_once(row)) == 0
        assert answer_at_once(row) == row["answer"].splitlines()[-1]


def test_same_row_same_thought_and_rows_differ_in_words() -> None:
    rows = MiniWorld().arithmetic("train", 100, steps=2)
    thoughts = [think_aloud(row) for row in rows]
    assert thoughts == [think_aloud(dict(row)) for row in rows]
    found = {word for thought in thoughts for word, n in ReflectiveWords().by_word(thought).items() if n}
    assert found == set(ReflectiveWords().words)


def test_an_answer_that_is_not_worked_is_named() -> None:
    with pytest.raises(DataError, match="'it is four' is not a line of a worked solution"):
        think_aloud({"id": "a", "answer": "it is four\n#### 4", "gold": "4"})
