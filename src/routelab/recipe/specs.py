"""What recipes of every kind are made of: the host, methods, sources of rows, evaluations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from routelab.recipe.reading import CHECKED, TUPLE, Scalar


@dataclass(frozen=True, config=CHECKED)
class HostSpec:
    """The model that every arm starts from: a shipped mini, a directory or a hub name.

    ``config`` names a JSON file with the host's public configuration values (a path, or one that is shipped, such
    as ``olmoe-1b-7b-0125``). ``--dry-run`` builds the host from it on the meta device, so that a recipe can be
    checked where its weights are not.
    """

    name: str
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    config: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True, config=CHECKED)
class MethodSpec:
    """One method of an arm: its registered name and its typed configuration."""

    method: str
    config: Any


@dataclass(frozen=True, config=CHECKED)
class DataSpec:
    """One source of training rows: a mini-world generator (``mini-arithmetic``, ...), a file here or below
    ``ROUTELAB_DATA``, or a hub name (``split`` then defaults to ``train``).

    ``format`` is the form of the rows (``messages``, ``gsm8k``, ``alpaca``, ...; generators have their own). ``limit``
    and ``fraction`` keep part of the rows, drawn with ``seed``; all arms and seeds train on the same rows. ``options``
    go to a generator. ``task`` names the task of all these rows, for methods that route by task; rows of ``messages``
    may have their own. ``expected_rows`` lets ``--dry-run`` count steps where a hub's data is not at hand.
    """

    source: str
    split: str | None = None
    format: str = "messages"
    limit: int | None = Field(default=None, ge=1)
    fraction: float | None = Field(default=None, gt=0, le=1)
    seed: int = 0
    options: dict[str, Scalar | Annotated[tuple[Scalar, ...], TUPLE]] = Field(default_factory=dict)
    task: str | None = Field(default=None, min_length=1)
    expected_rows: int | None = Field(default=None, ge=1)

    def kept(self, rows: int) -> int:
        """Return how many of ``rows`` rows are trained on."""
        wanted = rows if self.fraction is None else max(1, round(rows * self.fraction))
        return wanted if self.limit is None else min(wanted, self.limit)


@dataclass(frozen=True, config=CHECKED)
class TaskSpec:
    """One evaluation: the task's registered name, how many examples, and the task's own options."""

    task: str
    limit: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=16, ge=1)
    max_new_tokens: int | None = Field(default=None, ge=1)
    num_samples: int = Field(default=1, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    options: dict[str, Scalar] = Field(default_factory=dict)
