"""What whoever reads a finished run must agree on: what is JSON, what is damage, of which kind a run is, which host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from routelab.errors import CheckpointError, RoutelabError

#: What reading raises where a value has another shape than the one it was written in.
_SHAPE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, StopIteration, RecursionError)
_DIGITS = 8
#: Names of folders that say nothing without the folder around them.
_GENERIC = frozenset({"host", "model", "checkpoint", "export", "final"})


def parse_json(text: str) -> Any:
    """Return the value of JSON as runs write it, which has finite numbers only.

    Raises ``ValueError`` for what is no JSON, nested too deeply, or not finite.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise CheckpointError("it is nested too deeply") from error


def json_lines(text: str) -> list[str]:
    """Return the lines of JSON Lines. Only a line feed ends one: an answer in it may hold a U+2028 or U+0085 as it is,
    which ``str.splitlines`` takes for an end too."""
    return [line for line in text.split("\n") if line]


@contextmanager
def shaped(refuse: Callable[[str], RoutelabError]) -> Iterator[None]:
    """Read what a file holds; where it has another shape than a run writes, raise what ``refuse`` makes of a
    description. Named errors pass."""
    try:
        yield
    except RoutelabError:
        raise
    except KeyError as error:
        raise refuse(f"lacks {error}") from error
    except _SHAPE as error:
        raise refuse(f"is damaged: its values are not what a run writes ({type(error).__name__}: {error})") from error


def kind_of(results: Mapping[str, Any]) -> Any:
    """Return the kind of the run that ``results.json`` is of; the first version wrote none, and knew one."""
    return results.get("kind", "training")


def host_name(name: object) -> str:
    """Return the name of a host without folders, except the one around a name such as ``model``."""
    path = Path(str(name))
    return "/".join(path.parts[-2:]) if path.name in _GENERIC else path.name


def host_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of the hashes of a host's files in a ``manifest.json``; empty where it has none."""
    files = dict(manifest.get("host", {}))
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:_DIGITS] if files else ""


def _refuse(constant: str) -> NoReturn:
    raise CheckpointError(f"{constant} is no number of JSON")
