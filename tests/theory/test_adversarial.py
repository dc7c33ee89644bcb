"""Languages made to break a proof: shared keys, tables read both ways, words that depend on both names, few words."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from routelab.data.knowledge import OBJECT, SUBJECT, Knowledge, Task, Template
from routelab.theory import Construction, certify, construct_dense, construct_moe

ROUTING = "every prefix goes to its task's expert"


def language(seed: int) -> Knowledge:
    """One to four tasks over a few words and names, their tables read in either direction."""
    rng = random.Random(seed)
    words, names = "abcdefg"[: rng.randint(2, 7)], [f"N{i}" for i in range(rng.randint(3, 9))]
    tasks = []
    for number in range(rng.randint(1, 4)):
        templates = set()
        for _ in range(rng.randint(1, 3)):
            said = rng.choices(words, k=rng.randint(0, 4))
            first, second = (SUBJECT, OBJECT) if rng.random() < 0.65 else (OBJECT, SUBJECT)
            i = rng.randint(0, len(said))
            j = rng.randint(i, len(said))
            templates.add((*said[:i], first, *said[i:j], second, *said[j:]))
        pairs = {(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(1, 7))}
        tasks.append(Task(f"t{number}", tuple(map(Template, sorted(templates))), tuple(sorted(pairs))))
    return Knowledge(tuple(tasks))


def least_mass(made: Construction) -> float:
    """By full forwards over every sentence, with V from the knowledge's own trie."""
    trie, index, least = made.knowledge.trie, made.tokenizer.symbols.index, 1.0
    for words in {sentence.words for sentence in made.knowledge.sentences()}:
        ids = torch.tensor([made.tokenizer.encode_sentence(words)[:-1]])
        probabilities = made.model(input_ids=ids).logits[0].softmax(-1)
        for end in range(len(words) + 1):
            valid = [index(symbol) for symbol in trie.valid_next(words[:end])]
            least = min(least, float(probabilities[end, valid].sum()))
    return least


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.01, 1e-4]))
def test_any_language_has_its_mass_and_its_bounds(seed: int, eps: float) -> None:
    knowledge = language(seed)
    dense, experts = construct_dense(knowledge, eps), construct_moe(knowledge, eps)
    for made in (dense, experts):
        certificate, least = certify(made), least_mass(made)
        assert least > 1 - eps
        assert certificate.least_mass == pytest.approx(least, abs=1e-9)
        assert all(holds for claim, holds in certificate.claims.items() if claim != ROUTING), certificate.claims
        assert certificate.claims.get(ROUTING, True) == (certificate.detours == 0)


def test_a_key_of_two_tasks_wakes_only_the_fact_that_is_asked_for() -> None:
    capital = Task(
        "capital", (Template.parse("the capital of ⋆1 is ⋆2 ."),), (("France", "Paris"), ("Spain", "Madrid"))
    )
    river = Task("river", (Template.parse("the river of ⋆1 is ⋆2 ."),), (("France", "Loire"), ("Spain", "Ebro")))
    made = construct_dense(Knowledge((capital, river)))
    certificate = certify(made)
    assert certificate.passed
    assert certificate.off_task == 0
    assert sum(neuron.key is not None for neuron in made.layout[0]) == 4


def test_what_follows_may_depend_on_the_value_and_takes_a_third_head() -> None:
    colour = Task("colour", (Template.parse("⋆1 has ⋆2 as colour"),), (("x", "red"), ("y", "blue")))
    shape = Task("shape", (Template.parse("⋆1 has ⋆2 as shape"),), (("x", "round"), ("y", "flat")))
    for made in (construct_dense(Knowledge((colour, shape))), construct_moe(Knowledge((colour, shape)))):
        assert made.model.config.num_heads == 3
        assert least_mass(made) > 0.99
    assert construct_moe(Knowledge((colour,))).model.config.num_heads == 2


def test_tasks_told_apart_by_pairs_alone_have_no_linear_router() -> None:
    """Scores are sums of a function of the key and one of the value, and x y + u v = x v + u y."""
    template = (Template.parse("⋆1 is ⋆2 now ."),)
    one, two = Task("one", template, (("x", "y"), ("u", "v"))), Task("two", template, (("x", "v"), ("u", "y")))
    made = construct_moe(Knowledge((one, two)))
    certificate = certify(made)
    assert least_mass(made) > 0.99
    assert certificate.detours > 0
    assert not certificate.claims[ROUTING]
    assert certify(construct_dense(Knowledge((one, two)))).passed
