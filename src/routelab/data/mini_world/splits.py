"""Splits and seeded randomness shared by the generators of the mini-world."""

from __future__ import annotations

import hashlib
import random

from routelab.errors import DataError, closest

SPLITS = ("train", "validation", "test")


def check_split(split: str) -> str:
    """Return ``split`` if it is one of :data:`SPLITS`, else raise :class:`DataError`."""
    if split not in SPLITS:
        raise DataError(f"mini-world has no split {split!r}{closest(split, SPLITS)}")
    return split


def split_of(content: str) -> str:
    """The one split that owns ``content``: by SHA-256, so it depends on no seed (80 % train, 10 %, 10 %)."""
    bucket = int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big") % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def seeded(*parts: object) -> random.Random:
    """A generator of its own for each tuple of ``parts``; the same on every platform and Python version."""
    return random.Random("/".join(map(str, parts)))
