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
        return to_messages(_part(rows, spec), spec.format)
    if spec.limit is None:
        raise DataError(f"{spec.source} is generated: say how many rows with limit")
    source, generate = GENERATORS[spec.source]
    try:
        rows = generate(MiniWorld(), spec.split or "train", spec.limit, spec.options)
    except TypeError as error:
        raise DataError(f"{spec.source}: {error}") from error
    return to_messages(rows, source)


def is_hub_name(spec: DataSpec) -> bool:
    """Whether the source is neither generated nor a file, so that it has to be fetched from a hub."""
    return spec.source not in GENERATORS and not spec.source.endswith(LINES)


def _part(rows: Rows, spec: DataSpec) -> Rows:
    wanted = spec.kept(len(rows))
    if wanted == len(rows):
        return rows
    kept = sorted(random.Random(spec.seed).sample(range(len(rows)), wanted))
    return [rows[i] for i in kept]
