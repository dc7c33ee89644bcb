"""The depth-recurrent causal language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.utils import ModelOutput

from routelab.hosts.recurrent.backbone import RecurrentModel, RecurrentPreTrainedModel
from routelab.hosts.recurrent.cache import RecurrentCache
from routelab.hosts.recurrent.checkpoint import ChecksCheckpoint
from routelab.hosts.recurrent.config import RecurrentConfig
from routelab.hosts.recurrent.core import CoreAttention
from routelab.hosts.recurrent.generation import GeneratesRecurrently


@dataclass
class RecurrentOutput(ModelOutput):
    """``loss``, ``logits [B, S, vocabulary]``, the cache, and with ``output_states`` the states ``[T, B, S, d]``."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: RecurrentCache | None = None
    states: Tensor | None = None


class RecurrentForCausalLM(GeneratesRecurrently, ChecksCheckpoint, RecurrentPreTrainedModel, GenerationMixin):
    """A depth-recurrent causal language model under its published tensor names."""

    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}  # noqa: RUF012

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.transformer = RecurrentModel(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    @property
    def core_attention(self) -> CoreAttention:
        """Attention of the core; a method puts its own here."""
        return self.transformer.core_attention

    @core_attention.setter
    def core_attention(self, attention: CoreAttention) -> None:
        self.transformer.core_attention = attention

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        num_steps: int | None = None,
        initial_state: Tensor | None = None,
        seed: int | Tensor | None = None,
        cache: RecurrentCache | None = None,
        output_states: bool = False,
        labels: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> RecurrentOutput:
        """Run the model.

        Args:
            input_ids: ``[B, S]``.
            attention_mask: ``[B, K]`` over cached and new slots, 0 for padding on either side.
            num_steps: T ≥ 1. None means the configuration's ``mean_recurrence``, and in training a random depth with
                truncated backpropagation (:func:`routelab.hosts.recurrent.depth.sample_depth`).
            initial_state: ``[B, S, d]``, where the recurrence of these slots starts; drawn where it is None.
            seed: of the drawn state, one number or one per row ``[B]``. None means 0, and in training a fresh one per
                row from torch's generator. A token's state follows from the seed and its position alone.
            cache: a :class:`~routelab.hosts.recurrent.cache.RecurrentCache`, made for the same ``num_steps``.
            output_states: also return the core's output after every step, before any norm.
            labels: ``[B, S]``, −100 where no loss is taken; shifted inside.
            position_ids: ``[B, S]``; counted over real tokens where None.
            use_cache: make a cache if none is given.
            logits_to_keep: positions from the end, or indices, that get logits; 0 means all.

        Raises:
            HostError: ``num_steps`` below 1, a state of another shape, positions beyond ``block_size``, a mask of
                another length, packed rows, or a cache that does not belong to this call.
        """
        output = self.transformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            num_steps=num_steps,
            initial_state=initial_state,
            seed=seed,
            cache=cache,
            output_states=output_states,
            position_ids=position_ids,
            use_cache=use_cache,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(output.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return RecurrentOutput(loss=loss, logits=logits, cache=output.cache, states=output.states)
