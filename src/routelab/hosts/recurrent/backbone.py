"""The depth-recurrent backbone: prelude, a core applied T times, coda (arXiv 2502.05171 and 2511.07384)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput

from routelab.errors import HostError
from routelab.hosts.recurrent.cache import RecurrentCache, through
from routelab.hosts.recurrent.calls import place, require_cache, require_state
from routelab.hosts.recurrent.config import RecurrentConfig
from routelab.hosts.recurrent.core import CoreAttention, CoreCall, FullCoreAttention
from routelab.hosts.recurrent.depth import Depth, sample_depth
from routelab.hosts.recurrent.initial import draw_state
from routelab.hosts.recurrent.layers import Attention, PreNormBlock, Projection, RMSNorm, Rotation, SandwichBlock


@dataclass
class RecurrentModelOutput(ModelOutput):
    """``last_hidden_state [B, S, d]``, the cache, and with ``output_states`` every step's state ``[T, B, S, d]``."""

    last_hidden_state: Tensor | None = None
    cache: RecurrentCache | None = None
    states: Tensor | None = None


@dataclass(frozen=True)
class _Pass:
    """What the layers of one forward share."""

    call: CoreCall
    rotation: Rotation
    cache: RecurrentCache | None


class RecurrentPreTrainedModel(PreTrainedModel):
    """What the backbone and the language model share."""

    config_class = RecurrentConfig
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ["SandwichBlock", "PreNormBlock"]  # noqa: RUF012 (names that PreTrainedModel reads)
    _supports_sdpa = True
    # A table of rotations that the published Huginn stores; it follows from the configuration.
    _keys_to_ignore_on_load_unexpected = [r"freqs_cis$"]  # noqa: RUF012

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Normal with σ = sqrt(2/(5d)); projections back to the stream divided by sqrt(2 · blocks on the way)."""
        std = self.config.initial_std
        passes = self.config.n_layers_in_recurrent_block * self.config.mean_recurrence
        depth = self.config.n_layers_in_prelude + passes + self.config.n_layers_in_coda
        if isinstance(module, Projection):
            init.normal_(module.weight, std=std / math.sqrt(2 * depth))
        elif isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, std=std)
        elif isinstance(module, RMSNorm):
            init.ones_(module.weight)
        elif isinstance(module, Attention) and self.config.qk_bias:
            init.zeros_(module.qk_bias)


class RecurrentModel(RecurrentPreTrainedModel):
    """Token ids to the hidden states before the output weights.

    ``e = prelude(embed(ids))``; ``s_0`` is the initial state; ``s_t = core(adapter([s_{t−1} ∥ e]))`` for t = 1 … T;
    the output is ``norm(coda(s_T))``, for Huginn ``norm(coda(norm(s_T)))``.
    """

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        block = SandwichBlock if config.is_huginn else PreNormBlock
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.prelude = nn.ModuleList(block(config) for _ in range(config.n_layers_in_prelude))
        self.adapter = nn.Linear(2 * config.n_embd, config.n_embd, bias=False)
        self.core_block = nn.ModuleList(block(config) for _ in range(config.n_layers_in_recurrent_block))
        self.coda = nn.ModuleList(block(config) for _ in range(config.n_layers_in_coda))
        self.ln_f = RMSNorm(config.n_embd, config.norm_eps)
        self.core_attention: CoreAttention = FullCoreAttention()
        self.gradient_checkpointing = False
        self._begun: CoreCall | None = None
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.wte

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.wte = value

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        num_steps: int | None = None,
        initial_state: Tensor | None = None,
        seed: int | Tensor | None = None,
        cache: RecurrentCache | None = None,
        output_states: bool = False,
        position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> RecurrentModelOutput:
        """Run the model; arguments and errors as in :meth:`RecurrentForCausalLM.forward`."""
        depth = self._depth(num_steps)
        if use_cache and cache is None:
            cache = RecurrentCache()
        require_cache(cache, depth.steps)
        placed = place(input_ids, attention_mask, position_ids, cache, self.config.block_size)
        call = CoreCall(
            num_steps=depth.steps,
            query_length=input_ids.shape[1],
            key_length=placed.key_length,
            key_mask=placed.key_mask,
            cached=placed.key_length > input_ids.shape[1],
            row_key=cache,
        )
        shared = _Pass(call, Rotation.of(placed.positions, self.config, self.dtype), cache)

        embedded = self._outer(self.prelude, 0, self.wte(input_ids) * self.config.embed_scale, shared)
        state = self._start(embedded, placed.positions, initial_state, seed)
        states = []
        for current in self._recur(state, embedded, shared, depth):
            state = current
            if output_states:
                states.append(state)
        hidden = self.ln_f(state) if self.config.is_huginn else state
        hidden = self._outer(self.coda, len(self.prelude), hidden, shared)
        return RecurrentModelOutput(self.ln_f(hidden), cache, torch.stack(states) if output_states else None)

    def initial_state(self, positions: Tensor, seed: int | Tensor = 0) -> Tensor:
        """Return the drawn state ``[B or 1, S, d]`` of ``positions [B or 1, S]``, in the model's dtype."""
        std = self.config.initial_std * self.config.embed_scale
        return draw_state(seed, positions, self.config.n_embd, std).to(self.dtype)

    def _depth(self, num_steps: int | None) -> Depth:
        if num_steps is None:
            if self.training:
                return sample_depth(self.config.mean_recurrence, self.config.mean_backprop_depth)
            num_steps = self.config.mean_recurrence
        if num_steps < 1:
            raise HostError(f"num_steps={num_steps}: the core runs at least once")
        return Depth(0, num_steps)

    def _start(self, embedded: Tensor, positions: Tensor, given: Tensor | None, seed: int | Tensor | None) -> Tensor:
        """Return s_0: what is given, or drawn; in training every row draws its own where no seed is named."""
        if given is not None:
            require_state(given, embedded)
            return given.to(embedded)
        if seed is None:
            seed = torch.randint(1 << 62, (embedded.shape[0],)) if self.training else 0
        return self.initial_state(positions, seed).to(embedded).expand_as(embedded)

    def _outer(self, blocks: nn.ModuleList, first_slot: int, hidden: Tensor, shared: _Pass) -> Tensor:
        """Run the prelude or the coda."""
        for slot, block in enumerate(blocks, first_slot):
            hidden = block(hidden, shared.rotation, through(shared.cache, slot, shared.call.full_attention))
        return hidden

    def _recur(self, state: Tensor, embedded: Tensor, shared: _Pass, depth: Depth) -> Iterator[Tensor]:
        """Yield the state after every step that the core attention wants run."""
        checkpointed = self.gradient_checkpointing and self.training and shared.cache is None
        for step in range(1, self._begin(shared.call) + 1):
            with torch.no_grad() if step <= depth.without_gradient else nullcontext():
                if checkpointed and torch.is_grad_enabled():
                    state = self._gradient_checkpointing_func(self._step, state, embedded, shared, step)
                else:
                    state = self._step(state, embedded, shared, step)
            yield state
        self.core_attention.end()
        self._begun = None

    def _step(self, state: Tensor, embedded: Tensor, shared: _Pass, step: int) -> Tensor:
        """Return ``core(adapter([state ∥ embedded]))``."""
        if self._begun is not shared.call:  # the backward pass runs a checkpointed step again
            self._begin(shared.call)
        hidden = self.adapter(torch.cat((state, embedded), dim=-1))
        first_slot = len(self.prelude) + len(self.coda) + (step - 1) * len(self.core_block)
        for index, block in enumerate(self.core_block):
            attend = partial(self.core_attention.attend, step, index)
            hidden = block(hidden, shared.rotation, through(shared.cache, first_slot + index, attend))
        return hidden

    def _begin(self, call: CoreCall) -> int:
        self._begun = call
        return self.core_attention.begin(call)
