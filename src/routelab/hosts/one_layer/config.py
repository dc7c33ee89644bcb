"""Configuration of the one-layer mixture-of-experts transformer."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from routelab.errors import ConfigError, closest

GATES = ("hard", "probability")
ROUTINGS = ("token", "sequence")


class OneLayerConfig(PreTrainedConfig):
    """Shape of a :class:`~routelab.hosts.one_layer.model.OneLayerForCausalLM` (arXiv 2606.14398, section 3.2).

    Args:
        vocab_size: V.
        hidden_size: d, the width of the residual stream.
        num_heads: attention heads, at least two.
        head_size: width of a head; ``hidden_size / num_heads`` where it is not given.
        expert_sizes: ReLU neurons of each expert. One entry is the dense transformer, which has no router.
        max_length: longest sequence, in tokens.
        positions: whether tokens get a learned position embedding.
        gate: ``"hard"``, the paper's formula, in which a router gets no gradient from the language model; or
            ``"probability"``, which scales the chosen expert by its probability (Switch, arXiv 2101.03961).
        routing: ``"token"`` routes each token by its own state; ``"sequence"`` by the mean of the states up to it.
        initializer_range: standard deviation of the initial weights.

    Raises:
        ConfigError: a size is not positive, fewer than two heads, a head size that is missing and cannot be derived,
            an unknown gate or routing.
    """

    model_type = "routelab_one_layer"
    keys_to_ignore_at_inference = ["router_logits"]  # noqa: RUF012 (the type that transformers declares)

    vocab_size: int = 256
    hidden_size: int = 64
    num_heads: int = 2
    head_size: int | None = None
    expert_sizes: list[int] | tuple[int, ...] = (128,)
    max_length: int = 64
    positions: bool = True
    gate: str = "hard"
    routing: str = "token"
    initializer_range: float = 0.02
    output_router_logits: bool = False
    use_cache: bool = False
    num_hidden_layers: int = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    pad_token_id: int | None = 1
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        self.expert_sizes = list(self.expert_sizes)
        sizes = {"vocab_size": self.vocab_size, "hidden_size": self.hidden_size, "max_length": self.max_length}
        for name, size in sizes.items():
            if size < 1:
                raise ConfigError(f"{name} must be at least 1, got {size}")
        if self.num_heads < 2:
            raise ConfigError(f"num_heads must be at least 2, got {self.num_heads}")
        if self.head_size is None:
            if self.hidden_size % self.num_heads:
                raise ConfigError(
                    f"hidden_size {self.hidden_size} does not divide into {self.num_heads} heads; give head_size"
                )
            self.head_size = self.hidden_size // self.num_heads
        if self.head_size < 1:
            raise ConfigError(f"head_size must be at least 1, got {self.head_size}")
        if not self.expert_sizes or min(self.expert_sizes) < 1:
            raise ConfigError(f"expert_sizes needs at least one size of at least 1, got {self.expert_sizes}")
        for name, value, known in (("gate", self.gate, GATES), ("routing", self.routing, ROUTINGS)):
            if value not in known:
                raise ConfigError(f"unknown {name} {value!r}{closest(value, known)}")
        super().__post_init__(**kwargs)

    @property
    def num_experts(self) -> int:
        """E; 1 is the dense transformer."""
        return len(self.expert_sizes)
