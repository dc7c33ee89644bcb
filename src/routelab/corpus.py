"""The training rows of a recipe: from a source's name to chats."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.data.sources import LINES, load_rows
from routelab.errors import DataError
from routelab.recipe import DataSpec

Rows = list[dict[str, Any]]

#: The mini-world's generators by source name: chat source, and (world, split, rows wanted, options) → rows.
GENERATORS: Mapping[str, tuple[str, Callable[..., Rows]]] = MappingProxyType(
    {
        "mini-arithmetic": ("arithmetic", lambda world, split, n, options: world.arithmetic(split, n, **options)),
        "mini-facts": ("facts", lambda world, split, n, options: world.facts(split, n, **options)),
        "mini-paragraphs": ("paragraphs", lambda world, split, n, options: world.paragraphs(split, n, **options)),
    }
)


def training_rows(spec: DataSpec) -> Rows:
    """Return the chats of one source, the part that the spec keeps, in a fixed order: ``{"id", "messages"}`` each, and
    ``"task"`` where the spec or the row names one.

    Raises ``DataError`` for a missing file, rows of another form, and a generator without ``limit``.
    """
    rows = _chats(spec)
    return rows if spec.task is None else [row | {"task": spec.task} for row in rows]


def _chats(spec: DataSpec) -> Rows:
    if spec.source not in GENERATORS:
        rows = load_rows(spec.source, split=spec.split)
        return to_messages(drawn(rows, spec.kept(len(rows)), spec.seed), spec.format)
    return to_messages(
        generated_rows(spec.source, spec.split or "train", spec.limit, spec.options), GENERATORS[spec.source][0]
    )


def generated_rows(source: str, split: str, limit: int | None, options: Mapping[str, Any]) -> Rows:
    """Return rows of one of :data:`GENERATORS`; raises ``DataError`` without ``limit``, and for options it has not."""
    if limit is None:
        raise DataError(f"{source} is generated: say how many rows with limit")
    try:
        return GENERATORS[source][1](MiniWorld(), split, limit, options)
    except TypeError as error:
        raise DataError(f"{source}: {error}") from error


def is_hub_name(spec: DataSpec) -> bool:
    """Whether the source is neither generated nor a file, so that it has to be fetched from a hub."""
    return spec.source not in GENERATORS and not spec.source.endswith(LINES)


def drawn(rows: Rows, wanted: int, seed: int) -> Rows:
    """Return ``wanted`` of the rows, drawn with ``seed`` and in their order; all of them where there are no more."""
    if wanted >= len(rows):
        return rows
    kept = sorted(random.Random(seed).sample(range(len(rows)), wanted))
    return [rows[i] for i in kept]
