"""Look at all keys and say where the mass is; read a layout's blocks and nothing else.

Several queries go to the ops, through the parts of :class:`routelab.methods.wise.rows.Rows`. A single query a row, as
in decoding, needs neither tiles nor a shift: its weights are one row a head, and the blocks it reads are gathered from
the cache by slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from routelab.methods.wise.rows import Rows
from routelab.ops.attention_lse import attention_lse
from routelab.ops.block_mass import block_mass
from routelab.ops.block_schedule import BlockSchedule
from routelab.ops.block_sparse import block_sparse, prepare


def observe(rows: Rows, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor | None, Tensor]:
    """Return full attention's output, where it comes with the mass, and the block masses ``[B, H, Qb, Kb]`` (eq. 5).

    The output is None where the ops took the rows in another arrangement than full attention does: its bits differ.
    """
    if rows.single:
        return None, _single_mass(rows, query, key)
    output, masses = None, []
    for part in rows.parts:
        queries, keys = part.take_queries(query), part.take_keys(key)
        output, lse = attention_lse(queries, keys, part.take_keys(value), lengths=part.lengths)
        masses.append(
            block_mass(
                queries,
                keys,
                lse,
                block_size=rows.block_size,
                query_block=rows.query_block,
                lengths=part.lengths,
            )
        )
    if len(masses) == 1 and len(masses[0]) == len(query):
        return (output if rows.plain else None), masses[0]
    mass = masses[0].new_zeros(*query.shape[:2], rows.query_blocks, rows.key_blocks)
    for part, own in zip(rows.parts, masses, strict=True):
        part.crop(mass).copy_(own)
    return None, mass


@torch.no_grad()
def _single_mass(rows: Rows, query: Tensor, key: Tensor) -> Tensor:
    batch, heads, _, dim = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, dim)
    scores = (grouped * dim**-0.5) @ key.transpose(2, 3)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).reshape(batch, heads, -1)
    if rows.mask is not None:
        # A row without a real slot has no weights; its mass is never read.
        scores = scores.masked_fill(~rows.mask[:, None], torch.finfo(scores.dtype).min)
    mass = scores.new_zeros(batch, heads, rows.key_blocks + 1)
    mass.scatter_add_(2, rows.slot_blocks[:, None].expand_as(scores), scores.softmax(-1))
    return mass[:, :, None, :-1] * rows.real[..., None]


class Reader(ABC):
    """Attention inside one layout; made once, used by every later step."""

    @property
    @abstractmethod
    def backend(self) -> str:
        """The name of what runs."""

    @abstractmethod
    def read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return eq. 8, ``softmax(Q Kᵀ / √d + M + R) V``: ``[B, H, S, d]``."""


def reader(rows: Rows, layout: Tensor, query: Tensor, key: Tensor, backend: str) -> Reader:
    """Return a reader of ``layout [B, H, Qb, Kb]`` for tensors of these shapes.

    Raises:
        BackendError: ``backend`` does not exist, or cannot run these inputs here.
    """
    if rows.single:
        return CacheReader.of(rows, layout, key.shape[1])
    return BlockReader.of(rows, layout, query, key, backend)


@dataclass(frozen=True)
class BlockReader(Reader):
    """Several queries a row: ``ops.block_sparse`` with a schedule for each part."""

    rows: Rows
    schedules: tuple[BlockSchedule, ...]

    @classmethod
    def of(cls, rows: Rows, layout: Tensor, query: Tensor, key: Tensor, backend: str) -> BlockReader:
        schedules = [
            prepare(
                part.crop(layout),
                part.take_queries(query),
                part.take_keys(key),
                block_size=rows.block_size,
                query_block=rows.query_block,
                lengths=part.lengths,
                backend=backend,
            )
            for part in rows.parts
        ]
        return cls(rows, tuple(schedules))

    @property
    def backend(self) -> str:
        return "+".join(sorted({schedule.backend for schedule in self.schedules})) or "none"

    def read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        outputs = [
            part.give_back(block_sparse(part.take_queries(query), part.take_keys(key), part.take_keys(value), schedule))
            for part, schedule in zip(self.rows.parts, self.schedules, strict=True)
        ]
        if len(outputs) == 1 and len(outputs[0]) == len(query):
            return outputs[0]
        output = torch.zeros_like(query)
        for part, own in zip(self.rows.parts, outputs, strict=True):
            output[part.rows] = own
        return output


@dataclass(frozen=True)
class CacheReader(Reader):
    """One query a row: the slots of its blocks, gathered from the cache.

    Attributes:
        slots: ``[B, H, M]``, the slots to read, filled up with any; chosen: ``[B, H, M]``, which of them count.
        heads: ``[H]``, the key/value head of each query head.
    """

    slots: Tensor
    chosen: Tensor
    heads: Tensor

    @property
    def backend(self) -> str:
        return "cache"

    @classmethod
    def of(cls, rows: Rows, layout: Tensor, key_heads: int) -> CacheReader:
        read = F.pad(layout[:, :, 0], (0, 1))  # a padded slot lies in the block after the last, which nobody reads
        wanted = read.gather(2, rows.slot_blocks[:, None].expand(-1, layout.shape[1], -1))
        most = max(1, int(wanted.sum(-1).max()))
        chosen, slots = wanted.to(torch.int8).sort(dim=-1, descending=True, stable=True)
        heads = torch.arange(layout.shape[1], device=layout.device) // (layout.shape[1] // key_heads)
        return cls(slots[..., :most], chosen[..., :most].bool(), heads)

    def read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch = torch.arange(len(query), device=query.device)[:, None, None]
        heads = self.heads[:, None]
        # A row without a real query reads its first slot: it has no block.
        mask = self.chosen | ~self.chosen.any(-1, keepdim=True)
        keys, values = key[batch, heads, self.slots], value[batch, heads, self.slots]
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask[:, :, None])
