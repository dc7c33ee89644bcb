"""One forward under WISE: look during the early steps, freeze, read during the late ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from routelab.errors import ConfigError, HostError
from routelab.hosts.recurrent.core import CoreCall
from routelab.methods.wise.conditions import late_support, needs_first_mass, needs_working_set, reuses
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.discovery import Seen, discovery
from routelab.methods.wise.readers import Reader, observe, reader
from routelab.methods.wise.record import Record
from routelab.methods.wise.rows import Rows


@dataclass
class Track:
    """One core block: what was seen, and what of it is frozen.

    Attributes:
        frozen, frozen_at: ``[B, H, Qb]``, the units that read a fixed support, and after which step they began to.
        support, working: ``[B, H, Qb, Kb]``, of frozen units; of others, nothing.
        layout: the supports of frozen units and every admissible block of the others; None before the first.
        reader: of that layout, built at its first use.
        query, key: of the last full step, kept where the weights are frozen too.
    """

    seen: Seen
    frozen: Tensor
    frozen_at: Tensor
    support: Tensor
    working: Tensor
    layout: Tensor | None = None
    reader: Reader | None = None
    whole: bool = False
    query: Tensor | None = None
    key: Tensor | None = None
    masses: dict[int, Tensor] = field(default_factory=dict)


class Trajectory:
    """The steps of one forward. :meth:`attend` is called for each step and core block in order.

    Args:
        given: supports ``[core blocks, B or 1, H, Qb, Kb]`` to read late instead of discovered ones.
        keep_masses: look at the masses of every full step and keep them.
    """

    def __init__(self, config: WISEConfig, call: CoreCall, *, given: Tensor | None, keep_masses: bool) -> None:
        self.config, self.call, self.given, self.keep_masses = config, call, given, keep_masses
        self.steps = call.num_steps
        if config.condition == "truncate":
            self.steps = min(self.steps, config.discovery_steps)
        self.reuses = reuses(config.condition) and self.steps > config.discovery_steps
        self.rule = discovery(config)
        self.tracks: list[Track] = []
        self.step = 1
        self.looked: set[int] = set()
        self._rows: Rows | None = None

    @property
    def rows(self) -> Rows:
        assert self._rows is not None
        return self._rows

    def attend(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attention output of one core block at one step, ``[B, H, S, d]``."""
        if step < self.step:
            raise HostError(
                f"step {step} was asked for after step {self.step}: WISE runs forwards only, so gradient "
                "checkpointing, which runs steps again, does not go with it"
            )
        if step > self.step:
            self._close()
            self.step = step
        if block == len(self.tracks):
            self._open(query)
        track = self.tracks[block]
        freezes = self.config.condition == "freeze"
        if track.layout is not None and track.reader is None:
            track.reader = reader(self.rows, track.layout, query, key, self.config.backend)
        if track.reader is not None and track.whole:
            if freezes:
                assert track.query is not None
                assert track.key is not None
                query, key = track.query, track.key
            return track.reader.read(query, key, value)
        output = None
        if self._looks(step):
            output, mass = observe(self.rows, query, key, value)
            self._note(track, mass)
        if freezes and step == self.config.discovery_steps:
            track.query, track.key = query, key
        if track.reader is not None:
            return track.reader.read(query, key, value)
        return self.call.full_attention(query, key, value) if output is None else output

    def record(self) -> Record:
        """Return what happened so far."""
        rows, tracks = self.rows, self.tracks
        reused = self.reuses and all(track.layout is not None for track in tracks)
        discovered = reused and self.given is None and needs_working_set(self.config.condition)
        return Record(
            condition=self.config.condition,
            steps=self.step,
            looked=len(self.looked),
            backend="+".join(sorted({track.reader.backend for track in tracks if track.reader})) or "none",
            allowed=rows.allowed,
            query_blocks=rows.absolute,
            supports=torch.stack([track.support for track in tracks]) if reused else None,
            working_sets=torch.stack([track.working for track in tracks]) if discovered else None,
            frozen_at=torch.stack([track.frozen_at for track in tracks]) if reused else None,
            masses={step: torch.stack([track.masses[step] for track in tracks]) for step in tracks[0].masses},
        )

    def _open(self, query: Tensor) -> None:
        """Start the track of the next core block."""
        batch, heads = query.shape[:2]
        if self._rows is None:
            self._rows = Rows(self.call, batch, query.device, self.config.block_size, self.config.query_block)
        nothing = self.rows.allowed.new_zeros(batch, heads, self.rows.query_blocks, self.rows.key_blocks)
        self.tracks.append(
            Track(
                seen=Seen(self.config.window),
                frozen=(~self.rows.real).expand(batch, heads, -1).clone(),
                frozen_at=torch.zeros(batch, heads, self.rows.query_blocks, dtype=torch.int32, device=query.device),
                support=nothing,
                working=nothing.clone(),
            )
        )

    def _looks(self, step: int) -> bool:
        """Whether the masses of this step are needed."""
        if self.keep_masses:
            return True
        if not self.reuses or self.given is not None or step > self.config.discovery_steps:
            return False
        condition = self.config.condition
        if step == 1 and needs_first_mass(condition):
            return True
        return needs_working_set(condition) and self.rule.looks(step)

    def _note(self, track: Track, mass: Tensor) -> None:
        self.looked.add(self.step)
        if self.keep_masses:
            track.masses[self.step] = mass
        if self.reuses:
            track.seen.note(self.step, mass, self.rows.allowed, self.config.mass)

    def _close(self) -> None:
        """After the last core block of a step: freeze what is final."""
        if not self.reuses or self.step > self.config.discovery_steps:
            return
        final = self.rule.final(self.step, [track.seen for track in self.tracks], self.rows.allowed)
        for block, (track, units) in enumerate(zip(self.tracks, final, strict=True)):
            if units is False:
                continue
            new = ~track.frozen if units is True else units & ~track.frozen
            if bool(new.any()):
                self._freeze(block, track, new)

    def _freeze(self, block: int, track: Track, new: Tensor) -> None:
        """Give the ``new`` units ``[B, H, Qb]`` their supports."""
        support = self._support(block, track)
        track.support = torch.where(new[..., None], support, track.support)
        if track.seen.rolling is not None:
            track.working = torch.where(new[..., None], track.seen.rolling, track.working)
        track.frozen_at = torch.where(new, self.step, track.frozen_at)
        track.frozen = track.frozen | new
        track.whole = bool(track.frozen.all())
        track.layout = torch.where(track.frozen[..., None], track.support, self.rows.allowed)
        track.reader = None

    def _support(self, block: int, track: Track) -> Tensor:
        if self.given is None:
            return late_support(
                self.config,
                block,
                self.rows.allowed,
                self.rows.absolute,
                working=track.seen.rolling,
                first_mass=track.seen.first_mass,
            )
        wanted = tuple(track.support.shape)
        if block >= len(self.given) or tuple(self.given[block].shape) not in (wanted, (1, *wanted[1:])):
            raise ConfigError(
                f"the given supports are {tuple(self.given.shape)}; core block {block} of this call needs {wanted}"
            )
        return self.given[block].to(track.support.device).expand(wanted) & self.rows.allowed
