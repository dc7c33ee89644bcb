"""Closed-book facts: invented people, each with one value per relation, asked in several surface forms."""

from __future__ import annotations

from dataclasses import dataclass

from routelab.data.mini_world.names import CITIES, FOODS, HEADS, JOBS, PETS, TAILS
from routelab.data.mini_world.splits import seeded
from routelab.errors import DataError

CHOICES = 4
SUBJECTS = 100


@dataclass(frozen=True)
class Relation:
    """One relation: its possible ``values`` and the ways to ask for it, by split (``{s}`` is the subject)."""

    name: str
    values: tuple[str, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    def forms(self, split: str) -> tuple[str, ...]:
        return {"train": self.train, "validation": self.validation, "test": self.test}[split]


RELATIONS = (
    Relation(
        "city",
        CITIES,
        train=(
            "Where does {s} live?",
            "In which city does {s} live?",
            "What is the home city of {s}?",
            "Name the city where {s} lives.",
            "Complete the sentence: {s} lives in the city of",
        ),
        validation=("Which city does {s} live in?",),
        test=("What is the city where {s} lives?",),
    ),
    Relation(
        "job",
        JOBS,
        train=(
            "What is the job of {s}?",
            "What does {s} do for work?",
            "What kind of work does {s} do?",
            "Name the job that {s} has.",
            "Complete the sentence: {s} has a job and works as a",
        ),
        validation=("Which job does {s} have?",),
        test=("What job does {s} do for work?",),
    ),
    Relation(
        "pet",
        PETS,
        train=(
            "Which pet does {s} have?",
            "What animal does {s} keep?",
            "What is the pet of {s}?",
            "Name the animal that {s} keeps as a pet.",
            "Complete the sentence: {s} has a pet, and it is a",
        ),
        validation=("What pet does {s} keep?",),
        test=("Which animal does {s} have as a pet?",),
    ),
    Relation(
        "food",
        FOODS,
        train=(
            "What food does {s} like best?",
            "What is the favourite food of {s}?",
            "What does {s} like to eat?",
            "Name the food that {s} likes to eat.",
            "Complete the sentence: {s} likes to eat",
        ),
        validation=("Which food does {s} like best?",),
        test=("What is the food that {s} likes to eat?",),
    ),
)


@dataclass(frozen=True)
class Fact:
    subject: str
    relation: Relation
    value: str

    def ask(self, form: str) -> str:
        return form.format(s=self.subject)

    def choices(self, seed: int) -> list[str]:
        """The value and three other values of its relation, in an order fixed by ``seed`` and the fact."""
        rng = seeded("choices", seed, self.subject, self.relation.name)
        wrong = rng.sample([v for v in self.relation.values if v != self.value], CHOICES - 1)
        options = [self.value, *wrong]
        rng.shuffle(options)
        return options


def fact_book(seed: int, subjects: int = SUBJECTS) -> list[Fact]:
    """Every fact of the world ``seed``: ``subjects`` invented people times the relations."""
    names = [head + tail for head in HEADS for tail in TAILS]
    if not 1 <= subjects <= len(names):
        raise DataError(f"a fact book holds 1 to {len(names)} subjects, not {subjects}")
    rng = seeded("facts", seed)
    rng.shuffle(names)
    return [Fact(name, r, rng.choice(r.values)) for name in names[:subjects] for r in RELATIONS]
