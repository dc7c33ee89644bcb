"""Invented facts: relations of an invented world, named from syllables. The default wherever no file is given."""

from __future__ import annotations

import random
from collections.abc import Iterator

from routelab.data.knowledge.language import Knowledge, Task, Template
from routelab.errors import DataError

_ONSETS = ("b", "br", "d", "dr", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "th", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_CODAS = ("", "", "", "l", "m", "n", "r", "s")
# fmt: off
_ROLES = (
    "capital", "mayor", "river", "emblem", "founder", "patron", "harbour", "bridge", "school", "market", "temple",
    "castle", "orchard", "festival", "dish", "dance", "song", "poet", "rival", "ally", "guardian", "architect",
    "judge", "healer", "mason", "smith", "baker", "weaver", "pilot", "captain", "envoy", "tutor", "heir", "twin",
    "neighbour", "horse", "hound", "falcon", "sword", "banner", "crown", "ring", "lantern", "garden", "tower",
    "mill", "well", "vineyard", "quarry", "forest", "lake",
)
# fmt: on
#: ``{r}`` is the role. These begin alike in all tasks;
_SHARED = (
    "the {r} of ⋆1 is ⋆2 .",
    "⋆1 has ⋆2 as its {r} .",
    "⋆2 is the {r} of ⋆1 .",
    "⋆1 's {r} is ⋆2 .",
    "in ⋆1 , the {r} is ⋆2 .",
)
#: and these with the role itself.
_OWN = (
    "{r} of ⋆1 is ⋆2 .",
    "{r} for ⋆1 : ⋆2 .",
    "{r} named ⋆2 belongs to ⋆1 .",
    "{r} at ⋆1 , called ⋆2 .",
    "{r} ⋆2 serves ⋆1 .",
)


def fictional(
    tasks: int, templates: int = 5, pairs: int = 200, seed: int = 0, *, shared_prefixes: bool = True
) -> Knowledge:
    """Return invented tasks; half of their tables map every subject to its own object, half to one of a few objects.

    Args:
        tasks: at most 50.
        templates: at most 5 a task.
        shared_prefixes: whether different tasks have templates that begin alike. Without, the first word of a sentence
            tells its task, as Theorem 4.2 of arXiv 2606.14398 needs it.

    Raises:
        DataError: more tasks or templates than there are, or none.
    """
    patterns = _SHARED if shared_prefixes else _OWN
    for what, value, limit in (("tasks", tasks, len(_ROLES)), ("templates", templates, len(patterns))):
        if not 1 <= value <= limit:
            raise DataError(f"the invented world has 1 to {limit} {what}, not {value}")
    if pairs < 1:
        raise DataError(f"a task has at least one pair, not {pairs}")
    rng = random.Random(f"fictional {seed}")
    names = _names(rng)
    subjects = [next(names) for _ in range(pairs)]
    found = []
    for number, role in enumerate(rng.sample(_ROLES, tasks)):
        objects = [next(names) for _ in range(pairs if number % 2 == 0 else max(1, pairs // 8))]
        told = objects if number % 2 == 0 else [rng.choice(objects) for _ in range(pairs)]
        parsed = tuple(Template.parse(pattern.format(r=role)) for pattern in rng.sample(patterns, templates))
        found.append(Task(role, parsed, tuple(zip(subjects, told, strict=True))))
    return Knowledge(tuple(found))


def _names(rng: random.Random) -> Iterator[str]:
    """Yield different invented names, of two syllables while there are, then of three and more."""
    seen: set[str] = set()
    while True:
        syllables = 2 if len(seen) < 3000 else 3
        name = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)).title()
        if name not in seen:
            seen.add(name)
            yield name
