"""Constructed models against a slow oracle: a full forward on every prefix of every sentence, V by brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from routelab.data.knowledge import Knowledge, Task, Template, fictional, read_relations, select
from routelab.errors import CheckpointError, ConfigError
from routelab.theory import Construction, certify, complete, construct_dense, construct_moe, explain, save, verify


def task(name: str, templates: list[str], pairs: list[tuple[str, str]]) -> Task:
    return Task(name, tuple(Template.parse(text) for text in templates), tuple(pairs))


PAPER = Knowledge(
    (
        task("city", ["⋆1 is in ⋆2 ."], [("Paris", "France"), ("Madrid", "Spain")]),
        task("language", ["⋆1 is spoken widely in ⋆2 ."], [("English", "Canada"), ("Hindi", "India")]),
    )
)
# The prefix features "word at position" are linearly dependent: ab + cd = ad + cb.
DEPENDENT = Knowledge(
    (
        task("one", ["a b ⋆1 ⋆2", "a d ⋆1 ⋆2"], [("x", "y"), ("u", "v")]),
        task("two", ["c d ⋆1 ⋆2", "c b ⋆1 ⋆2"], [("x", "v"), ("u", "y")]),
    )
)
# "⋆1 likes" followed by x begins sentences of both tasks.
AMBIGUOUS = Knowledge(
    (
        task("drink", ["⋆1 likes ⋆2 .", "⋆1 drinks ⋆2 with joy every day ."], [("x", "tea"), ("y", "milk")]),
        task("food", ["⋆1 likes ⋆2 today .", "⋆1 eats ⋆2 with joy every day ."], [("x", "rice"), ("z", "bread")]),
    )
)
# ⋆2 comes first, so the table is read backwards, where a key has several values.
BACKWARDS = Knowledge((task("born", ["⋆2 saw the birth of ⋆1 ."], [("Ann", "Rome"), ("Bob", "Rome"), ("Cy", "Oslo")]),))


def valid_next(knowledge: Knowledge, prefix: tuple[str, ...]) -> set[str]:
    found = set()
    for sentence in knowledge.sentences():
        words = (*sentence.words, "</s>")
        if words[: len(prefix)] == prefix:
            found.add(words[len(prefix)])
    return found


def check(made: Construction) -> None:
    """Assert the theorem on every prefix of every sentence, by full forwards."""
    tokenizer, knowledge = made.tokenizer, made.knowledge
    for number in range(len(knowledge.tasks)):
        for sentence in (each for each in knowledge.sentences() if each.task == number):
            for end in range(len(sentence.words) + 1):
                prefix = sentence.words[:end]
                ids = torch.tensor([tokenizer.encode_sentence(prefix)[:-1]])
                out = made.model(input_ids=ids, output_router_logits=True)
                valid = [tokenizer.symbols.index(word) for word in valid_next(knowledge, prefix)]
                mass = float(out.logits[0, -1].softmax(-1)[valid].sum())
                assert mass > 1 - made.eps, (prefix, mass)
                if out.router_logits is not None:
                    tasks = {s.task for s in knowledge.sentences() if s.words[:end] == prefix}
                    assert int(out.router_logits[0][-1].argmax()) == min(tasks), prefix


@pytest.mark.parametrize("eps", [0.1, 0.01, 1e-4])
@pytest.mark.parametrize(
    "knowledge", [PAPER, DEPENDENT, AMBIGUOUS, BACKWARDS], ids=["paper", "dependent", "ambiguous", "back"]
)
def test_every_prefix_has_its_mass_and_its_expert(knowledge: Knowledge, eps: float) -> None:
    for made in (construct_moe(knowledge, eps), construct_dense(knowledge, eps)):
        certificate = certify(made)
        assert certificate.passed, certificate.claims
        check(made)


@pytest.mark.parametrize("eps", [0.1, 0.01, 1e-4])
@pytest.mark.parametrize("seed", range(10))
def test_random_languages(seed: int, eps: float) -> None:
    rng = random.Random(seed)
    shared = seed >= 5
    knowledge = fictional(rng.randint(2, 5), rng.randint(1, 3), rng.randint(2, 6), seed=seed, shared_prefixes=shared)
    for made in (construct_moe(knowledge, eps, "auto" if shared else "template"), construct_dense(knowledge, eps)):
        assert certify(made).passed
        check(made)


def test_the_papers_router_refuses_shared_prefixes_by_name() -> None:
    with pytest.raises(ConfigError, match=r"tasks share '⋆1 is' \(city, language\)"):
        construct_moe(PAPER, 0.01, "template")
    check(construct_moe(DEPENDENT, 0.01, "template"))


@pytest.mark.parametrize("eps", [0.0, 1.0, -1.0, 2.0])
def test_eps_is_between_0_and_1(eps: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        construct_moe(PAPER, eps)


def test_sizes_are_within_the_theorems_bounds() -> None:
    certificate = certify(construct_moe(PAPER, 0.01))
    assert certificate.width.value <= 2 * PAPER.max_length * 2
    for count, own in zip(certificate.neurons, PAPER.tasks, strict=True):
        assert count.value <= PAPER.max_length * len(own.templates) + certificate.N
    dense = certify(construct_dense(PAPER, 0.01))
    assert dense.all_neurons.value <= PAPER.max_length * 2 + dense.N * 2
    assert dense.off_task == 0


def test_a_saved_construction_is_checked_again_and_any_changed_weight_is_noticed(tmp_path: Path) -> None:
    made = construct_moe(PAPER, 0.01)
    save(made, certify(made), tmp_path)
    assert verify(tmp_path).passed
    assert complete(tmp_path, "Paris is in") == "Paris is in France."
    found = explain(tmp_path, "Hindi is spoken widely in")
    assert (found["next"], found["expert"], found["valid"]) == ("India", "language", True)
    names = sorted(load_file(tmp_path / "model.safetensors"))
    for name in (names[0], names[-1], "lm_head.weight"):
        tensors = load_file(tmp_path / "model.safetensors")
        original = tensors[name].clone()
        tensors[name].view(-1)[-1] += 1e-3
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(CheckpointError):
            verify(tmp_path)
        tensors[name] = original
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert verify(tmp_path).passed


@pytest.mark.parametrize("eps", [0.1, 0.01, 1e-4])
@pytest.mark.parametrize("construct", [construct_dense, construct_moe])
def test_real_relations(data_root: Path, construct: Callable[..., Construction], eps: float) -> None:
    knowledge = select(read_relations("bear", data_root), 20, 2, 20, 0)
    certificate = certify(construct(knowledge, eps))
    assert certificate.passed, certificate.claims
