"""The mini-world: determinism, exact answers (recomputed from the text alone), disjoint splits."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from routelab.data.mini_world import MiniWorld
from routelab.data.mini_world.arithmetic import OPERATORS, Problem, apply
from routelab.data.mini_world.facts import RELATIONS, fact_book
from routelab.data.mini_world.splits import SPLITS, split_of
from routelab.errors import DataError

GOLDEN_QUESTION = (
    "At first Vera has 3 cards. Tom owns 3 times the number of cards that Vera has. "
    "Priya has 3 times as many cards as Tom. How many cards does Priya have in the end?"
)
GOLDEN_KEY = "3*3*3"
GOLDEN_FACT = "What is the city where Holdis lives?"
GOLDEN_VALUE = "Pelham"

EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
# What a reader needs to solve a problem from its words: one pattern per operation, numbers taken from the text.
READING = (
    ("total", r"(?!)"),
    ("times", r"has (\d+) times as many|owns (\d+) times the number|For each of .*, \w+ has (\d+)"),
    ("share", r"among (\d+) boxes|into (\d+) equal"),
    ("more", r"has (\d+) more \w+ than|Compared with .* has (\d+) more|owns (\d+) \w+ more than"),
    ("fewer", r"has (\d+) fewer \w+ than|Compared with .* has (\d+) fewer|owns (\d+) \w+ fewer than"),
    ("lose", r"gives (\d+) \w+ to|loses (\d+)|sells (\d+)|takes (\d+) of|throws away (\d+)"),
    ("gain", r"finds (\d+)|buys (\d+)|gets (\d+)|gives \w+ (\d+)|another (\d+)"),
)


def read(question: str) -> Problem:
    """Recover the problem from its words."""
    *told, asked = re.split(r"(?<=[.?]) ", question)
    start = int(re.search(r"\d+", told[0]).group())
    steps = []
    for sentence in told[1:]:
        kind, match = next((k, m) for k, pattern in READING if (m := re.search(pattern, sentence)))
        steps.append((kind, int(next(g for g in match.groups() if g))))
    if "together" in asked or "in total" in asked:
        steps.append(("total", 0))
    return Problem(start, tuple(steps))


@pytest.mark.parametrize("split", SPLITS)
def test_arithmetic_answers_follow_from_the_words_alone(split: str) -> None:
    for row in MiniWorld(seed=3).arithmetic(split, 300, steps=(1, 5)):
        problem = read(row["question"])
        assert problem.key == row["key"]
        assert str(problem.result) == row["gold"]
        assert row["answer"].splitlines()[-1] == f"#### {row['gold']}"


def test_worked_solutions_are_true_line_by_line_and_chain() -> None:
    for row in MiniWorld().arithmetic("test", 200, steps=(2, 5)):
        lines = row["answer"].splitlines()
        equations = [EQUATION.fullmatch(line).groups() for line in lines[:-1]]
        assert len(equations) == row["steps"]
        for left, symbol, right, result in equations:
            assert apply(int(left), symbol, int(right)) == int(result)
        for (*_, result), (left, _, right, _) in pairwise(equations):
            assert result in (left, right)
        assert lines[-1] == f"#### {equations[-1][-1]}"


def test_every_number_stays_in_range_and_steps_are_honoured() -> None:
    for limit in (20, 99, 500):
        for row in MiniWorld().arithmetic("train", 150, steps=(2, 4), limit=limit):
            numbers = [int(n) for n in re.findall(r"\d+", row["answer"])]
            assert 2 <= row["steps"] <= 4
            assert min(numbers) >= 2
            assert max(numbers) <= limit


def test_all_kinds_of_step_occur() -> None:
    rows = MiniWorld().arithmetic("train", 300)
    assert {k for row in rows for k, _ in read(row["question"]).steps} == set(OPERATORS)


def test_arithmetic_splits_share_no_problem_whatever_the_seed_and_draw() -> None:
    keys = {
        split: {
            row["key"]
            for seed in range(2)
            for draw in range(2)
            for row in MiniWorld(seed).arithmetic(split, 250, steps=(1, 3), limit=99, draw=draw)
        }
        for split in SPLITS
    }
    for a, b in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not keys[a] & keys[b]
    assert all(split_of(key) == split for split in SPLITS for key in keys[split])


def test_same_content_in_other_words_is_the_same_problem() -> None:
    gained = Problem(12, (("gain", 7), ("share", 1)))
    compared = Problem(12, (("more", 7), ("share", 1)))
    assert gained.key == compared.key


def test_a_total_adds_the_last_two_people() -> None:
    problem = Problem(10, (("more", 4), ("lose", 3), ("total", 0)))  # P has 10; Q has 14, then 11; together 21
    assert problem.equations() == [(10, "+", 4, 14), (14, "-", 3, 11), (10, "+", 11, 21)]


def test_distractors_change_the_words_but_not_the_answer() -> None:
    for row in MiniWorld().arithmetic("train", 100, steps=2, distractors=2):
        assert len(re.findall(r"looks at|on a table|\.", row["question"])) >= 5
        assert row["answer"].splitlines()[-1] == f"#### {row['gold']}"


def test_same_call_same_rows_and_a_longer_call_starts_with_them() -> None:
    for kind in ("arithmetic", "facts", "paragraphs"):
        draw = getattr(MiniWorld(7), kind)
        again = getattr(MiniWorld(7), kind)
        assert draw("test", 20) == again("test", 20)
        assert draw("test", 40)[:20] == again("test", 20)
        assert draw("test", 20) != getattr(MiniWorld(8), kind)("test", 20)


def test_draws_differ_and_ids_are_unique() -> None:
    world = MiniWorld()
    a, b = world.arithmetic("train", 50), world.arithmetic("train", 50, draw=1)
    assert [r["question"] for r in a] != [r["question"] for r in b]
    rows = [*a, *b, *world.facts("train"), *world.paragraphs("train", 50)]
    assert len({r["id"] for r in rows}) == len(rows)


def test_known_rows_never_change() -> None:
    """The shipped minis were trained on these; a change of the generator needs new weights."""
    row = MiniWorld(0).arithmetic("test", 1, steps=2)[0]
    fact = MiniWorld(0).facts("test", 1)[0]
    assert (row["question"], row["key"]) == (GOLDEN_QUESTION, GOLDEN_KEY)
    assert (fact["question"], fact["answer"]) == (GOLDEN_FACT, GOLDEN_VALUE)


def test_facts_are_the_same_in_each_split_and_worded_differently() -> None:
    world = MiniWorld()
    truth = {(f.subject, f.relation.name): f.value for f in fact_book(0)}
    assert len(truth) == 400
    asked = {}
    for split in SPLITS:
        rows = world.facts(split)
        asked[split] = {r["question"] for r in rows}
        assert {(r["subject"], r["relation"]): r["answer"] for r in rows} == truth
        for row in rows:
            assert len(set(row["choices"])) == 4
            assert row["choices"][row["gold"]] == row["answer"]
    assert not asked["train"] & asked["test"]
    assert not asked["train"] & asked["validation"]
    assert not asked["validation"] & asked["test"]
    assert len(asked["train"]) == 5 * 400


def test_position_of_the_right_choice_is_not_a_hint() -> None:
    golds = [r["gold"] for r in MiniWorld().facts("test")]
    assert all(60 < golds.count(i) < 140 for i in range(4))


def test_values_of_a_relation_suffice_for_four_choices() -> None:
    for relation in RELATIONS:
        assert len(set(relation.values)) == len(relation.values) >= 4


LINK = re.compile(
    r"^(?P<a>[\w ]+) (?:lives in|works for|is a friend of|is famous for|sells) (?P<b>[\w ]+)\.$"
    r"|^The pet of (?P<c>[\w ]+) is the (?P<d>\w+)\.$"
)


def follow(context: str, question: str, hops: int) -> str:
    """Answer from the text: find the subject that the question names, follow its sentence, then the next one's."""
    links = {}
    for sentence in re.split(r"(?<=\.) ", context):
        m = LINK.match(sentence)
        subject, value = (m["a"], m["b"]) if m["a"] else (m["c"], m["d"])
        assert subject not in links or "friend" in sentence or "pet" in sentence.lower()
        links[subject] = value
    named = [s for s in links if re.search(rf"\b{re.escape(s)}\b", question)]
    assert len(named) == 1
    value = links[named[0]]
    return links[value] if hops == 2 else value


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("sentences", [2, 6, 60])
def test_paragraph_answers_follow_from_the_text(hops: int, sentences: int) -> None:
    for row in MiniWorld().paragraphs("test", 25, sentences=sentences, hops=hops):
        told = re.split(r"(?<=\.) ", row["context"])
        assert len(told) == row["sentences"] == sentences
        assert follow(row["context"], row["question"], hops) == row["gold"] == row["answer"]
        assert len(row["support"]) == row["hops"] == hops
        # the named sentences alone give the same answer
        support = " ".join(told[i] for i in row["support"])
        assert follow(support, row["question"], hops) == row["gold"]


def test_paragraphs_of_any_length() -> None:
    row = MiniWorld().paragraphs("train", 1, sentences=3000, hops=2)[0]
    assert follow(row["context"], row["question"], 2) == row["gold"]


def test_paragraph_splits_are_disjoint() -> None:
    rows = {s: {r["context"] for r in MiniWorld().paragraphs(s, 200, sentences=3)} for s in SPLITS}
    assert not rows["train"] & rows["test"]
    assert not rows["train"] & rows["validation"]


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda w: w.arithmetic("tests", 1), "did you mean 'test'"),
        (lambda w: w.facts("dev"), "known: test, train, validation"),
        (lambda w: w.arithmetic("train", 1, steps=(3, 2)), "steps"),
        (lambda w: w.arithmetic("train", 1, steps=11), "1 to 10"),
        (lambda w: w.arithmetic("train", 1, limit=5), "limit"),
        (lambda w: w.arithmetic("train", 1, distractors=-1), "distractors"),
        (lambda w: w.arithmetic("test", 5000, steps=1, limit=12), "found only"),
        (lambda w: w.facts("train", subjects=10_000), "subjects"),
        (lambda w: w.paragraphs("train", 1, hops=3), "hops"),
        (lambda w: w.paragraphs("train", 1, sentences=1, hops=2), "sentences"),
        (lambda w: w.paragraphs("train", 1, sentences=(9, 3)), "low to high"),
    ],
)
def test_bad_requests_are_named(call, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        call(MiniWorld())
