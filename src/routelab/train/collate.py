"""Rows of documents to the tensors of one forward pass."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from routelab.train.encode import IGNORED, Document
from routelab.train.plan import Row


def collate(
    documents: Sequence[Document],
    rows: Sequence[Row],
    *,
    packed: bool,
    pad_token: int,
    arguments: Collection[str] = (),
    examples: int | None = None,
) -> dict[str, Tensor]:
    """Return ``input_ids`` and ``labels`` ``[B, L]``, padded on the right, with what tells documents apart.

    Unpacked rows come with ``attention_mask`` ``[B, L]``. Packed rows come with ``position_ids`` ``[B, L]`` that
    restart at every document, and *without* an attention mask: the hosts build the block-diagonal mask from restarted
    positions only where they are given none. The padding of a packed row is one more document, without labels.

    ``arguments`` of methods (``Method.arguments``), ``[B, L]`` each: ``task_ids``, ``IGNORED`` in the padding;
    ``token_mask``; ``prompt_mask``, 1 on the tokens before a document's first label.

    ``examples`` M, the documents of the whole step, adds ``loss_weights`` ``[B, L]``: ``1 / (M T_i)`` on the T_i labels
    of document i, so that their weighted sum over a step is the mean over examples of the mean over tokens.
    """
    length = max(sum(len(documents[i]) for i in row) for row in rows)
    shape = (len(rows), length)
    batch = {"input_ids": torch.full(shape, pad_token), "labels": torch.full(shape, IGNORED)}
    positions, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    task_ids, prompt_mask = torch.full(shape, IGNORED), torch.zeros(shape, dtype=torch.long)
    weights = torch.zeros(shape)
    for r, row in enumerate(rows):
        at = 0
        for index in row:
            document = documents[index]
            end = at + len(document)
            batch["input_ids"][r, at:end] = torch.from_numpy(document.input_ids)
            batch["labels"][r, at:end] = torch.from_numpy(document.labels)
            if document.task_ids is not None:
                task_ids[r, at:end] = torch.from_numpy(document.task_ids)
            positions[r, at:end] = torch.arange(end - at)
            prompt_mask[r, at : at + document.prompt] = 1
            if examples is not None:
                weights[r, at:end] = 1 / (examples * document.labelled)
            at = end
        positions[r, at:] = torch.arange(length - at)
        mask[r, :at] = 1
    if packed:
        batch["position_ids"] = positions
    else:
        batch["attention_mask"] = mask
    if examples is not None:
        batch["loss_weights"] = weights.masked_fill(batch["labels"] == IGNORED, 0)
    known = {"task_ids": task_ids, "token_mask": mask, "prompt_mask": prompt_mask}
    return batch | {name: known[name] for name in sorted(arguments)}
