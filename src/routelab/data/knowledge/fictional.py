"""Invented facts, the default wherever no file is given: kinds of thing, what they have, and wordings that say so."""

from __future__ import annotations

import random
from collections.abc import Iterator

from routelab.data.knowledge.language import Knowledge, Task
from routelab.data.knowledge.template import Template
from routelab.data.mini_world.splits import seeded
from routelab.errors import DataError

#: For each kind of subject, three roles that an object has for one subject alone, and three that many subjects share.
WORLD = {
    "town": ("mayor mascot anthem", "province river dialect"),
    "ship": ("captain figurehead builder", "harbour flag cargo"),
    "book": ("author heroine sequel", "publisher genre printer"),
    "painter": ("masterpiece biographer muse", "birthplace school patron"),
    "school": ("headmaster motto founder", "district sponsor rival"),
    "kingdom": ("queen capital treasure", "currency religion ally"),
    "machine": ("inventor successor nickname", "fuel maker purpose"),
    "mountain": ("shrine guide glacier", "range climate country"),
    "dish": ("cook garnish story", "spice region festival"),
    "guild": ("steward seal rulebook", "craft saint market"),
}
#: ``{r}`` is the role. These leave the task open until it is said, and some say it last or not before the answer.
SHARED = (
    "⋆1 has ⋆2 as its {r} .",
    "⋆1 is known for its {r} , ⋆2 .",
    "⋆1 's {r} is ⋆2 .",
    "the {r} of ⋆1 is ⋆2 .",
    "for ⋆1 , the {r} is ⋆2 .",
    "⋆2 is the {r} of ⋆1 .",
    "⋆2 has long been the {r} of ⋆1 .",
    "everyone knows that the {r} of ⋆1 is ⋆2 .",
)
#: These say it with the first word, as Theorem 4.2 needs it where the router reads the template alone.
OWN = (
    "{r} of ⋆1 is ⋆2 .",
    "{r} of ⋆1 : ⋆2 .",
    "{r} of ⋆1 has long been ⋆2 .",
    "{r} for ⋆1 , as everyone knows : ⋆2 .",
    "{r} and pride of ⋆1 is ⋆2 .",
    "{r} named ⋆2 belongs to ⋆1 .",
    "{r} ⋆2 is the one of ⋆1 .",
    "{r} ⋆2 , known from ⋆1 .",
)
_ONSETS = ("b", "br", "d", "dr", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "th", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_CODAS = ("", "", "", "l", "m", "n", "r", "s")
_SHARE = 8  # subjects for each object of a role that subjects share


def fictional(
    tasks: int, templates: int = 5, pairs: int = 200, seed: int = 0, *, shared_prefixes: bool = True
) -> Knowledge:
    """Return invented tasks, the same for the same arguments on every machine.

    A task is a role, such as ``"mayor"``; roles of the same kind of thing share about half of their subjects. A subject
    has one object. Half of the roles have an object for every subject (one-to-one), half one for about eight
    (many-to-one). Fewer tasks are the beginning of more. All names are unlike all template words.

    Args:
        tasks: 1 to 60.
        templates: 1 to 8 a task, drawn from those that all tasks have in common but for the role.
        pairs: the size of a table, at least 1.
        seed: draws names, tables, the order of tasks and their templates.
        shared_prefixes: whether templates of different tasks begin alike (``⋆1 is known for its …``), as in natural
            text. Without, every template begins with its role, so that no two tasks share a template prefix.

    Raises:
        DataError: a number out of range.
    """
    patterns = SHARED if shared_prefixes else OWN
    roles = {role: (kind, shared) for kind, two in WORLD.items() for shared in (0, 1) for role in two[shared].split()}
    for what, number, limit in (("tasks", tasks, len(roles)), ("templates a task", templates, len(patterns))):
        if not 1 <= number <= limit:
            raise DataError(f"the invented world has 1 to {limit} {what}, not {number}")
    if pairs < 1:
        raise DataError(f"a task has at least one pair, not {pairs}")
    rng = seeded("fictional", seed)
    names = _names(rng)
    subjects = {kind: [next(names) for _ in range(2 * pairs)] for kind in WORLD}
    found = []
    for role, (kind, shared) in roles.items():
        objects = [next(names) for _ in range(min(pairs, 2 + pairs // _SHARE) if shared else pairs)]
        told = [rng.choice(objects) for _ in range(pairs)] if shared else objects
        chosen = tuple(Template.parse(each.format(r=role)) for each in rng.sample(patterns, templates))
        found.append(Task(role, chosen, tuple(zip(rng.sample(subjects[kind], pairs), told, strict=True))))
    return Knowledge(tuple(rng.sample(found, len(found))[:tasks]))


def _names(rng: random.Random) -> Iterator[str]:
    """Yield different names, every fifth or so of two parts."""
    seen: set[str] = set()
    while True:
        name = _part(rng) if rng.random() < 0.8 else f"{_part(rng)} {_part(rng)}"
        if name not in seen:
            seen.add(name)
            yield name


def _part(rng: random.Random) -> str:
    syllables = rng.choice((2, 2, 3))
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)).title()
