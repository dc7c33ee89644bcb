"""The paper's transformer layer, exactly: two or more heads, top-1 ReLU experts, no norm, a linear output.

Shapes: B sequences, S tokens each, N = B * S, d hidden size, E experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import MoeCausalLMOutputWithPast, MoeModelOutputWithPast
from transformers.utils import can_return_tuple

from routelab.errors import HostError
from routelab.hosts.one_layer.config import OneLayerConfig


class Attention(nn.Module):
    """Causal multi-head attention, ``softmax(Q K^T / sqrt(head_size)) V`` per head, then ``W_O``; no biases."""

    def __init__(self, config: OneLayerConfig) -> None:
        super().__init__()
        self.num_heads, width = config.num_heads, config.num_heads * int(config.head_size or 0)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(config.hidden_size, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, hidden: Tensor, visible: Tensor | None) -> Tensor:
        """Attend; ``visible`` is ``[B, 1, S, S]`` bool, or None for plain causal attention."""
        query, key, value = (
            projection(hidden).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible, is_causal=visible is None)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """``FF(x) = W2 relu(W1 x + b1) + b2`` (definition A.1)."""

    def __init__(self, hidden_size: int, neurons: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, neurons)
        self.down = nn.Linear(neurons, hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(F.relu(self.up(hidden)))


def dispatch(hidden: Tensor, chosen: Tensor, experts: Sequence[nn.Module]) -> Tensor:
    """Return ``FF_{chosen[n]}(hidden[n])`` for every token: tokens sorted by expert, one call per expert in use.

    An expert without tokens has no gradient afterwards (None, not zeros), so that an optimizer leaves it as it is.

    Args:
        hidden: ``[N, d]``.
        chosen: ``[N]`` integers below ``len(experts)``.
    """
    order = chosen.argsort(stable=True)
    groups = hidden[order].split(chosen.bincount(minlength=len(experts)).tolist())
    sorted_outputs = torch.cat([expert(group) for expert, group in zip(experts, groups, strict=True) if len(group)])
    return torch.empty_like(sorted_outputs).index_copy(0, order, sorted_outputs)


class OneLayerPreTrainedModel(PreTrainedModel):
    """What transformers asks of the family: no caches, weights from a normal distribution."""

    config_class = OneLayerConfig
    base_model_prefix = "model"
    _supports_sdpa = True

    def _supports_default_dynamic_cache(self) -> bool:
        return False


class OneLayerModel(OneLayerPreTrainedModel):
    """Tokens to the states before the output layer (arXiv 2606.14398, section 3.2).

    ``A = embed(ids) + position``; ``A' = MHA(A) + A``; ``A'' = MoE(A') + A'`` with ``MoE(x) = g FF_e(x)``,
    ``e = argmax(G x)``, and ``g = 1`` (``gate="hard"``) or ``g = softmax(G x)_e`` (``gate="probability"``).

    With ``routing="sequence"`` the router reads the mean of ``A'`` over the positions up to the token, so the decision
    is the sequence's and never looks ahead; the experts still get each token's own state.
    """

    def __init__(self, config: OneLayerConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embed_positions = nn.Embedding(config.max_length, config.hidden_size) if config.positions else None
        self.attention = Attention(config)
        dense = config.num_experts == 1
        self.router = None if dense else nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(config.hidden_size, size) for size in config.expert_sizes)
        self.post_init()

    def expert(self, index: int) -> FeedForward:
        """Return one expert."""
        found = self.experts[index]
        assert isinstance(found, FeedForward)
        return found

    def positions(self) -> Tensor:
        """Return the position embeddings, ``[max_length, d]``.

        Raises:
            HostError: the host has none.
        """
        if self.embed_positions is None:
            raise HostError("this one-layer host has no position embeddings (positions=False)")
        return self.embed_positions.weight

    @can_return_tuple
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> MoeModelOutputWithPast:
        """Return ``last_hidden_state [B, S, d]`` and ``router_logits``, one ``[B * S, E]`` (None if dense).

        Positions count the tokens that ``attention_mask [B, S]`` shows, so padding on either side changes nothing.

        Raises:
            HostError: a sequence longer than ``max_length``, or a cache, which this host does not have.
        """
        _refuse_unknown(kwargs)
        if input_ids.shape[1] > self.config.max_length:
            raise HostError(
                f"{input_ids.shape[1]} tokens are more than the model's max_length {self.config.max_length}"
            )
        shown = torch.ones_like(input_ids) if attention_mask is None else attention_mask.to(input_ids.dtype)
        states = self.embed_tokens(input_ids)
        if self.embed_positions is not None:
            states = states + self.embed_positions((shown.cumsum(-1) - 1).clamp_min(0))
        states = states + self.attention(states, None if attention_mask is None else _visible(shown))
        flat = states.flatten(0, 1)
        if self.router is None:
            return MoeModelOutputWithPast(last_hidden_state=states + self.experts[0](flat).view_as(states))
        read = flat if self.config.routing == "token" else _running_mean(states, shown).flatten(0, 1)
        logits = self.router(read)
        chosen = logits.argmax(-1)
        update = dispatch(flat, chosen, list(self.experts))
        if self.config.gate == "probability":
            update = update * logits.softmax(-1).gather(-1, chosen[:, None])
        return MoeModelOutputWithPast(last_hidden_state=states + update.view_as(states), router_logits=(logits,))


class OneLayerForCausalLM(OneLayerPreTrainedModel, GenerationMixin):
    """The layer and its linear output, ``logits = W_U A''``, as a causal language model."""

    def __init__(self, config: OneLayerConfig) -> None:
        super().__init__(config)
        self.model = OneLayerModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_router_logits: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> MoeCausalLMOutputWithPast:
        """Return ``logits [B, S, V]``; the mean next-token loss where ``labels [B, S]`` are given (-100 is left out).

        ``output_router_logits`` adds ``router_logits``, one ``[B * S, E]``. No auxiliary loss is ever added here.
        """
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        wanted = self.config.output_router_logits if output_router_logits is None else output_router_logits
        return MoeCausalLMOutputWithPast(
            loss=loss, logits=logits, router_logits=outputs.router_logits if wanted else None
        )

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Give the whole sequence at every step: without a cache there is nothing else to continue from."""
        return {"input_ids": input_ids, "attention_mask": attention_mask}


def _visible(shown: Tensor) -> Tensor:
    """``[B, 1, S, S]``: the causal mask without hidden keys. A token always sees itself, so no row is empty."""
    length = shown.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=shown.device).tril()
    itself = torch.eye(length, dtype=torch.bool, device=shown.device)
    return ((causal & shown.bool()[:, None, :]) | itself)[:, None]


def _running_mean(states: Tensor, shown: Tensor) -> Tensor:
    """Mean of ``states [B, S, d]`` over the shown positions up to each position."""
    weights = shown.to(states.dtype)[..., None]
    return (states * weights).cumsum(1) / weights.cumsum(1).clamp_min(1)


def _refuse_unknown(arguments: dict[str, Any]) -> None:
    """Refuse arguments that would change the result if they were heeded; those that ask for nothing are let through."""
    harmless = {"use_cache", "return_dict", "output_router_logits", "output_attentions", "output_hidden_states"}
    unknown = sorted(name for name, value in arguments.items() if value is not None and name not in harmless)
    if unknown:
        raise HostError(f"the one-layer host does not take {', '.join(unknown)}: it has no cache and reads input_ids")
