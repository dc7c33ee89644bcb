"""What ``generate`` needs to know about a recurrent model: its cache, and the state of tokens yet to come."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from routelab.errors import HostError, closest
from routelab.hosts.recurrent.backbone import RecurrentModel
from routelab.hosts.recurrent.cache import RecurrentCache
from routelab.hosts.recurrent.calls import positions_of
from routelab.hosts.recurrent.config import RecurrentConfig

_CACHES = ("dynamic", "static")


class GeneratesRecurrently:
    """``generate(..., num_steps=..., initial_state=..., seed=...)``; mixed in before ``GenerationMixin``."""

    config: RecurrentConfig
    transformer: RecurrentModel

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        kind = generation_config.cache_implementation or "dynamic"
        if kind not in _CACHES:
            raise HostError(f"cache_implementation={kind!r} cannot hold a slot per step{closest(kind, _CACHES)}")
        if model_kwargs.get("cache") is not None:
            if generation_config.cache_implementation is not None:
                raise HostError("give a cache, or a cache_implementation to make one, not both")
            model_kwargs["cache"]._is_user_defined = True  # generate then leaves it as it stands
        elif generation_config.use_cache is not False:
            static = kind == "static"
            length = max(max_cache_length, generation_config.max_cache_len or 0)
            model_kwargs["cache"] = RecurrentCache(max_length=length if static else None)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: RecurrentCache | None = None,
        attention_mask: Tensor | None = None,
        initial_state: Tensor | None = None,
        seed: int | Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Prepare one call. An ``initial_state`` ``[B, ≤ slots, d]`` covers the first slots; later ones are drawn."""
        inputs: dict[str, Any] = super().prepare_inputs_for_generation(  # type: ignore[misc]  # GenerationMixin follows
            input_ids, next_sequence_length=next_sequence_length, cache=cache, attention_mask=attention_mask, **kwargs
        )
        inputs["seed"] = seed
        if initial_state is not None:
            inputs["initial_state"] = self._extend(initial_state, input_ids, attention_mask, seed)[
                :, -inputs["input_ids"].shape[1] :
            ]
        return inputs

    def _extend(
        self,
        given: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        seed: int | Tensor | None,
    ) -> Tensor:
        """Return states of all slots so far: the given ones, then drawn ones."""
        slots = attention_mask.shape[1] if attention_mask is not None else input_ids.shape[1]
        positions = positions_of(attention_mask, slots, input_ids.device)[:, given.shape[1] :]
        drawn = self.transformer.initial_state(positions, 0 if seed is None else seed)
        return torch.cat((given, drawn.to(given).expand(given.shape[0], -1, -1)), dim=1)
