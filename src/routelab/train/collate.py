"""Rows of documents to the tensors of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from routelab.train.encode import IGNORED, Document
from routelab.train.plan import Row


def collate(documents: Sequence[Document], rows: Sequence[Row], *, packed: bool, pad_token: int) -> dict[str, Tensor]:
    """Return ``input_ids`` and ``labels`` ``[B, L]``, padded on the right, with what tells documents apart.

    Unpacked rows come with ``attention_mask`` ``[B, L]``. Packed rows come with ``position_ids`` ``[B, L]`` that
    restart at every document, and *without* an attention mask: the hosts build the block-diagonal mask from restarted
    positions only where they are given none. The padding of a packed row is one more document, without labels.
    """
    length = max(sum(len(documents[i]) for i in row) for row in rows)
    batch = {
        "input_ids": torch.full((len(rows), length), pad_token),
        "labels": torch.full((len(rows), length), IGNORED),
    }
    positions = torch.zeros((len(rows), length), dtype=torch.long)
    mask = torch.zeros((len(rows), length), dtype=torch.long)
    for r, row in enumerate(rows):
        at = 0
        for index in row:
            document = documents[index]
            end = at + len(document)
            batch["input_ids"][r, at:end] = torch.from_numpy(document.input_ids)
            batch["labels"][r, at:end] = torch.from_numpy(document.labels)
            positions[r, at:end] = torch.arange(end - at)
            at = end
        positions[r, at:] = torch.arange(length - at)
        mask[r, :at] = 1
    if packed:
        batch["position_ids"] = positions
    else:
        batch["attention_mask"] = mask
    return batch
