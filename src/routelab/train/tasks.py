"""Task labels of documents: from the rows' names to the numbers of an attached method."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from routelab.errors import TrainingError, closest
from routelab.train.encode import IGNORED, EncodedRows


def with_tasks(encoded: EncodedRows, tasks: Sequence[str]) -> EncodedRows:
    """Return the rows with ``task_ids`` that count in ``tasks`` instead of ``encoded.tasks``.

    Raises:
        TrainingError: a document has no label, or one that is not among ``tasks``.
    """
    for name in encoded.tasks:
        if name not in tasks:
            raise TrainingError(
                f"rows are labelled with the task {name!r}, which the method lacks{closest(name, tasks)}"
            )
    number = np.array([list(tasks).index(name) for name in encoded.tasks], dtype=np.int32)
    documents = []
    for index, document in enumerate(encoded.documents):
        if document.task_ids is None or not (document.task_ids != IGNORED).any():
            bare = sum(each.task_ids is None for each in encoded.documents)
            raise TrainingError(
                f"the task-router loss needs a task for every row, and {bare or 'some'} of {len(encoded.documents)} "
                f"have none (the first is document {index}); give rows a 'task', or their source one in the recipe, "
                f"out of: {', '.join(tasks)}"
            )
        known = document.task_ids != IGNORED
        task_ids = np.where(known, number[np.where(known, document.task_ids, 0)], np.int32(IGNORED))
        documents.append(replace(document, task_ids=task_ids))
    return replace(encoded, documents=tuple(documents), tasks=tuple(tasks))


def tasks_digest(encoded: EncodedRows) -> str:
    """Return a hash over all labels. The plan's fingerprint leaves them out: arms without labels see equal batches."""
    digest = hashlib.sha256("\n".join(encoded.tasks).encode())
    for document in encoded.documents:
        assert document.task_ids is not None
        digest.update(hashlib.sha256(document.task_ids.tobytes()).digest())
    return digest.hexdigest()
