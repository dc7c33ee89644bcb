"""Which documents each optimiser step sees: fixed by data, configuration and seed before training starts."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from routelab.errors import TrainingError
from routelab.train.config import TrainConfig
from routelab.train.encode import Document, EncodedRows

Row = tuple[int, ...]
"""Documents of one row of a batch, by index: several when packed, else one."""


@dataclass(frozen=True)
class Plan:
    """The whole training run as data.

    Attributes:
        documents: what the indices in ``batches`` point to.
        batches: one entry per forward pass: its rows.
        grad_accum: forward passes of one step (the last step may have fewer).
        packed: rows hold several documents.
        step_tokens: input tokens that have been seen after each step.
        fingerprint: hash over every token, every label and their order. Equal fingerprints mean equal batches, so two
            arms with the same one differ in nothing but their method.
        fillers: batches whose labels do not count, in a plan that was dealt out to several processes.
    """

    documents: Sequence[Document]
    batches: tuple[tuple[Row, ...], ...]
    grad_accum: int
    packed: bool
    step_tokens: tuple[int, ...]
    fingerprint: str
    fillers: frozenset[int] = frozenset()

    @property
    def steps(self) -> int:
        """Number of optimiser steps."""
        return len(self.step_tokens)

    @property
    def tokens(self) -> int:
        """Input tokens of the whole run, padding not counted."""
        return self.step_tokens[-1]

    def examples_of_step(self, batch: int) -> int:
        """Number of documents in the step that a batch belongs to."""
        return sum(len(row) for number in self._counted(batch) for row in self.batches[number])

    def passes_of_step(self, batch: int) -> int:
        """Number of batches, fillers left out, in the step that a batch belongs to."""
        return len(self._counted(batch))

    def _counted(self, batch: int) -> list[int]:
        first = batch - batch % self.grad_accum
        return [n for n in range(first, min(first + self.grad_accum, len(self.batches))) if n not in self.fillers]

    @property
    def labelled(self) -> int:
        """Labelled tokens of the whole run."""
        sizes = [document.labelled for document in self.documents]
        return sum(sizes[i] for batch in self.batches for row in batch for i in row)


def make_plan(encoded: EncodedRows, config: TrainConfig, seed: int) -> Plan:
    """Lay out all batches of a run.

    Every epoch is a fresh permutation drawn from ``(seed, epoch)``; batches run on across epochs. With packing, each
    epoch's documents are packed best-fit decreasing and the packed rows permuted. Nothing depends on the model.
    """
    lengths = [len(document) for document in encoded.documents]
    stream = _rows(lengths, config, seed)
    batches: list[tuple[Row, ...]] = []
    step_tokens: list[int] = []
    seen = 0
    while not _reached(config, len(step_tokens), seen):
        step = [rows for _ in range(config.grad_accum) if (rows := tuple(islice(stream, config.batch_size)))]
        if not step:  # the epochs are used up
            break
        seen += sum(lengths[i] for rows in step for row in rows for i in row)
        batches.extend(step)
        step_tokens.append(seen)
    documents = encoded.documents
    fingerprint = _fingerprint(documents, batches, config.grad_accum)
    return Plan(documents, tuple(batches), config.grad_accum, config.packing, tuple(step_tokens), fingerprint)


def _reached(config: TrainConfig, steps: int, tokens: int) -> bool:
    if config.steps is not None:
        return steps >= config.steps
    return config.tokens is not None and tokens >= config.tokens


def _rows(lengths: Sequence[int], config: TrainConfig, seed: int) -> Iterator[Row]:
    epoch = 0
    while config.epochs is None or epoch < config.epochs:
        random = np.random.default_rng([seed, epoch])
        order = random.permutation(len(lengths)).tolist()
        if config.packing:
            rows = best_fit_decreasing([lengths[i] for i in order], config.max_length)
            for row in random.permutation(len(rows)):
                yield tuple(order[i] for i in rows[row])
        else:
            yield from ((i,) for i in order)
        epoch += 1


def best_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack items into as few rows of ``capacity`` as the greedy rule finds; no item is split.

    Items go longest first (earlier first among equals), each into the fullest row that still has room for it.

    Returns:
        The rows, each a list of indices into ``lengths``.

    Raises:
        TrainingError: an item is longer than a row.
    """
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (room left, row), sorted
    for item in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[item]
        if length > capacity:
            raise TrainingError(f"a document of {length} tokens does not fit a packed row of {capacity}")
        at = bisect_left(room, (length, -1))
        if at == len(room):
            rows.append([])
            left, row = capacity, len(rows) - 1
        else:
            left, row = room.pop(at)
        rows[row].append(item)
        if left > length:
            insort(room, (left - length, row))
    return rows


def _fingerprint(documents: Sequence[Document], batches: Sequence[tuple[Row, ...]], grad_accum: int) -> str:
    contents = [
        hashlib.sha256(document.input_ids.tobytes() + document.labels.tobytes()).digest() for document in documents
    ]
    digest = hashlib.sha256(str(grad_accum).encode())
    for rows in batches:
        for row in rows:
            digest.update(b"row")
            for index in row:
                digest.update(contents[index])
        digest.update(b"batch")
    return digest.hexdigest()
