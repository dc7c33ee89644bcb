"""Questions over paragraphs: one or two hops, the rest of the paragraph is distractors of the same kinds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from routelab.data.mini_world.names import FOODS, HEADS, MIDDLES, OBJECTS, PEOPLE, PETS, TAILS
from routelab.errors import DataError


@dataclass(frozen=True)
class Chain:
    """Two linked sentences, ``a → b`` and ``b → c``, with questions for either hop and for both."""

    name: str
    bridge: str  # the kind of b: "place", "firm" or "person"
    ends: tuple[str, ...]  # the possible c
    first: str
    second: str
    ask_first: str
    ask_second: str
    ask_both: str


CHAINS = (
    Chain(
        "city",
        "place",
        OBJECTS,
        first="{a} lives in {b}.",
        second="{b} is famous for {c}.",
        ask_first="Where does {a} live?",
        ask_second="What is {b} famous for?",
        ask_both="What is the place where {a} lives famous for?",
    ),
    Chain(
        "firm",
        "firm",
        FOODS,
        first="{a} works for {b}.",
        second="{b} sells {c}.",
        ask_first="For which firm does {a} work?",
        ask_second="What does {b} sell?",
        ask_both="What does the firm that {a} works for sell?",
    ),
    Chain(
        "friend",
        "person",
        PETS,
        first="{a} is a friend of {b}.",
        second="The pet of {b} is the {c}.",
        ask_first="Who is the friend of {a}?",
        ask_second="What is the pet of {b}?",
        ask_both="What is the pet of the friend of {a}?",
    ),
)

# Two invented words name a person, one a place or a firm: enough for paragraphs of some thousand sentences.
MAX_SENTENCES = 4000


@dataclass(frozen=True)
class Story:
    """A paragraph as sentences, its question, the exact answer and where its support stands."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]
    chain: str


def draw_story(rng: random.Random, sentences: int, hops: int) -> Story:
    """Draw a paragraph of exactly ``sentences`` sentences, ``hops`` (1 or 2) of them needed for the answer.

    Every subject occurs in one pair of sentences only, so the answer is unique.
    """
    if hops not in (1, 2):
        raise DataError(f"a paragraph question has 1 or 2 hops, not {hops}")
    if not hops <= sentences <= MAX_SENTENCES:
        raise DataError(f"a {hops}-hop paragraph has {hops} to {MAX_SENTENCES} sentences, not {sentences}")
    fresh = fresh_names(rng)
    chain = rng.choice(CHAINS)
    a, b, c = next(fresh["person"]), next(fresh[chain.bridge]), rng.choice(chain.ends)
    pair = [chain.first.format(a=a, b=b), chain.second.format(b=b, c=c)]
    if hops == 2:
        support, question, answer = pair, chain.ask_both.format(a=a), c
    elif rng.random() < 0.5:
        support, question, answer = pair[:1], chain.ask_first.format(a=a), b
    else:
        support, question, answer = pair[1:], chain.ask_second.format(b=b), c
    others = [s for s in pair if s not in support]
    while len(others) < sentences - hops:
        other = rng.choice(CHAINS)
        x, y, z = next(fresh["person"]), next(fresh[other.bridge]), rng.choice(other.ends)
        others += [other.first.format(a=x, b=y), other.second.format(b=y, c=z)]
    told = support + others[: sentences - hops]
    order = list(range(sentences))
    rng.shuffle(order)
    places = tuple(order.index(i) for i in range(hops))
    return Story(tuple(told[i] for i in order), question, answer, places, chain.name)


def fresh_names(rng: random.Random) -> dict[str, Iterator[str]]:
    """Endless names by kind (``person``, ``place``, ``firm``), none of them twice."""
    return {"person": _people(rng), "place": _invented(rng, ""), "firm": _invented(rng, " Works")}


def _people(rng: random.Random) -> Iterator[str]:
    yield from _unused(lambda: f"{rng.choice(PEOPLE)} {rng.choice(HEADS)}{rng.choice(TAILS)}")


def _invented(rng: random.Random, suffix: str) -> Iterator[str]:
    yield from _unused(lambda: f"{rng.choice(HEADS)}{rng.choice(MIDDLES)}{rng.choice(TAILS)}{suffix}")


def _unused(draw: Callable[[], str]) -> Iterator[str]:
    used: set[str] = set()
    while True:
        name = draw()
        if name not in used:
            used.add(name)
            yield name
