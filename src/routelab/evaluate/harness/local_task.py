"""Tasks of the harness whose rows come from local files: ``ROUTELAB_DATA``, a path, or a hub name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

from routelab.errors import EvaluationError, closest
from routelab.evaluate.harness.readers import PLACES, Row

WITHHELD = "[withheld]"
#: What is kept of a row of a private task.
_KEPT = ("id", "gold")


class Rows(list[Row]):
    """Rows of one split, with the names of their fields where the harness looks for them."""

    @property
    def features(self) -> Mapping[str, Any]:
        return self[0]


class LocalTask(ConfigurableTask):
    """A task file whose ``custom_dataset`` is one of our readers, ``(path, name, split) -> rows``.

    ``dataset_path`` is a name of :data:`routelab.evaluate.harness.readers.PLACES`. The place itself is the one there,
    or what ``--metadata data=...`` maps the name to: a file, a directory or a hub name. What was read stands with the
    scores, as ``metadata.source``: the place, and the number and SHA-256 of the rows of every split.

    ``metadata.private``: neither prompts, outputs nor documents are kept in the records.

    Raises:
        DataError: rows are missing or malformed.
        EvaluationError: ``data`` names a source that no task has, or a cache of a private task's prompts is asked for.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config={key: value for key, value in config.items() if key != "class"})

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Read the rows; the harness calls this where its own tasks download."""
        config = self.config
        read: Callable[[str, str | None, str], Sequence[Row]] = config.custom_dataset
        place = _places(config.metadata)[config.dataset_path]
        splits = dict.fromkeys(split for split in (config.test_split, config.fewshot_split) if split)
        self.dataset = {split: Rows(read(place, config.dataset_name, split)) for split in splits}
        found = {split: {"rows": len(rows), "sha256": _sha256(rows)} for split, rows in self.dataset.items()}
        config.metadata = {**config.metadata, "source": {"place": place, "name": config.dataset_name, "splits": found}}

    def build_all_requests(self, *, cache_requests: bool = False, **options: Any) -> None:
        """Build the prompts, as the harness does."""
        if cache_requests and self._private:
            raise EvaluationError(f"the text of {self.task_name} must not be stored: leave out --cache_requests")
        super().build_all_requests(cache_requests=cache_requests, **options)

    def apply_filters(self) -> list[Instance] | None:
        """Find the answers in the outputs; of a private task nothing else is left after this."""
        found: list[Instance] | None = super().apply_filters()
        if self._private:
            for instance in self._instances:
                instance.arguments = (WITHHELD, *instance.arguments[1:])
                instance.resps = [WITHHELD] * len(instance.resps)
                instance.doc.update((key, WITHHELD) for key in instance.doc if key not in _KEPT)
        return found

    @property
    def _private(self) -> bool:
        return bool(self.config.metadata.get("private", False))


def _places(metadata: Mapping[str, Any]) -> dict[str, str]:
    given = metadata.get("data") or {}
    if not isinstance(given, Mapping):
        raise EvaluationError(
            f"data maps names of sources to places, as in data={{'gsm8k': 'my/gsm8k'}}; got {given!r}"
        )
    for name in given:
        if name not in PLACES:
            raise EvaluationError(f"no task reads a source called {name!r}{closest(str(name), PLACES)}")
    return {**PLACES, **{name: str(place) for name, place in given.items()}}


def _sha256(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()
