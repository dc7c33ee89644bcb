"""Configuration of depth-recurrent models, in the field names of the published ``config.json``."""

from __future__ import annotations

import math
from typing import Any, Literal

from transformers import PreTrainedConfig

from routelab.errors import ConfigError, closest

Architecture = Literal["huginn", "llama"]

ARCHITECTURES = ("huginn", "llama")
PLAIN = "default"
#: Rotations that depend on the position alone, not on the length of the text.
ROTATIONS = (PLAIN, "linear", "llama3", "yarn")


class RecurrentConfig(PreTrainedConfig):
    """Shape of a Huginn (arXiv 2502.05171) or a Recurrent-Llama (arXiv 2511.07384); the defaults are Huginn-0125's.

    Both are published under the model type ``huginn_raven``. ``architecture`` tells them apart; without it the module
    named in ``auto_map`` does, and :meth:`RecurrentForCausalLM.from_pretrained` also looks at the tensors.

    Args:
        n_embd, n_heads, num_key_value_heads, intermediate_size: width, query heads, key heads (default: as many), and
            neurons of an MLP.
        n_layers_in_prelude, n_layers_in_recurrent_block, n_layers_in_coda: blocks of each part.
        vocab_size, padding_multiple, padded_vocab_size: the embedding has ``padded_vocab_size`` rows, by default
            ``vocab_size`` rounded up to the multiple; both names then give the number of rows.
        block_size: number of positions. A Recurrent-Llama is published with the Llama's ``max_position_embeddings``
            beside it, which is what its rotation allows; that one counts where both are given.
        mean_recurrence: steps of a forward that names none, and the mean of training's random depth.
        mean_backprop_depth: steps that training sends gradients through, at most.
        rope_theta: rotary base; ``rope_base`` is its other published name.
        rope_parameters: kind and scaling of the rotation as transformers has it (``rope_scaling`` in older files).
        embed_scale: factor on embeddings and on the initial state; Huginn's is ``sqrt(n_embd)``.
        init_values: the published dictionary, of which ``embed_scale`` and ``std`` are read.
        qk_bias, tie_embeddings: a learned bias on queries and keys; output weights that are the embedding.

    Raises:
        ConfigError: an unknown architecture, a size below 1, or sizes that do not divide each other.
    """

    model_type = "huginn_raven"
    keys_to_ignore_at_inference = ["cache", "states"]  # noqa: RUF012 (read by the trainer under this name)
    attribute_map = {  # noqa: RUF012 (read by PreTrainedConfig under this name)
        "hidden_size": "n_embd",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "block_size",
        "tie_word_embeddings": "tie_embeddings",
        "padded_vocab_size": "vocab_size",
    }

    def __init__(
        self,
        *,
        n_embd: int = 5280,
        n_heads: int = 55,
        num_key_value_heads: int | None = None,
        intermediate_size: int = 17920,
        n_layers_in_prelude: int = 2,
        n_layers_in_recurrent_block: int = 4,
        n_layers_in_coda: int = 2,
        vocab_size: int = 65536,
        padding_multiple: int = 4096,
        padded_vocab_size: int | None = None,
        block_size: int = 4096,
        max_position_embeddings: int | None = None,
        mean_recurrence: int = 32,
        mean_backprop_depth: int = 8,
        norm_eps: float = 1e-6,
        rope_theta: float | None = None,
        rope_base: float = 50_000.0,
        rope_parameters: dict[str, Any] | None = None,
        rope_scaling: dict[str, Any] | None = None,
        embed_scale: float | None = None,
        init_values: dict[str, float] | None = None,
        qk_bias: bool | None = None,
        tie_embeddings: bool | None = None,
        architecture: Architecture | None = None,
        **kwargs: Any,
    ) -> None:
        self.architecture = architecture or architecture_in(kwargs.get("auto_map")) or "huginn"
        if self.architecture not in ARCHITECTURES:
            raise ConfigError(f"unknown architecture {architecture!r}{closest(str(architecture), ARCHITECTURES)}")
        self.n_embd, self.n_heads = n_embd, n_heads
        self.num_key_value_heads = num_key_value_heads or n_heads
        self.intermediate_size = intermediate_size
        self.n_layers_in_prelude = n_layers_in_prelude
        self.n_layers_in_recurrent_block = n_layers_in_recurrent_block
        self.n_layers_in_coda = n_layers_in_coda
        self.padding_multiple = padding_multiple
        self.vocab_size = padded_vocab_size or math.ceil(vocab_size / padding_multiple) * padding_multiple
        self.block_size = max_position_embeddings or block_size
        self.mean_recurrence, self.mean_backprop_depth = mean_recurrence, mean_backprop_depth
        self.norm_eps = norm_eps
        scaling = rope_parameters or rope_scaling or {}
        self.rope_theta = float(scaling.get("rope_theta") or rope_theta or rope_base)
        self.rope_parameters = {"rope_type": PLAIN, **scaling, "rope_theta": self.rope_theta}
        published = init_values or {}
        if embed_scale is None:
            embed_scale = published.get("embed_scale", math.sqrt(n_embd) if self.is_huginn else 1.0)
        self.embed_scale = embed_scale
        self.init_values = {"std": math.sqrt(2 / (5 * n_embd)), **published, "embed_scale": embed_scale}
        every_head_has_keys = self.num_key_value_heads == n_heads
        self.qk_bias = self.is_huginn and every_head_has_keys if qk_bias is None else qk_bias
        self.tie_embeddings = self.is_huginn if tie_embeddings is None else tie_embeddings
        self._check()
        # These follow from the shape, and the parent's fields of the same meaning from ours.
        for derived in ("head_dim", "n_layers", "num_hidden_layers", "tie_word_embeddings"):
            kwargs.pop(derived, None)
        super().__init__(tie_word_embeddings=self.tie_embeddings, **kwargs)

    @property
    def is_huginn(self) -> bool:
        return self.architecture == "huginn"

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_heads

    @property
    def initial_std(self) -> float:
        """σ = sqrt(2 / (5 n_embd)), of fresh weights and, times ``embed_scale``, of the initial state."""
        return self.init_values["std"]

    @property
    def num_hidden_layers(self) -> int:
        """Blocks that have weights of their own."""
        return self.n_layers_in_prelude + self.n_layers_in_recurrent_block + self.n_layers_in_coda

    def to_dict(self) -> dict[str, Any]:
        """Return the fields to save; the number of rows under its exact name too, which nothing rounds."""
        return {**super().to_dict(), "padded_vocab_size": self.vocab_size}

    def _check(self) -> None:
        for name in (
            "n_embd", "n_heads", "num_key_value_heads", "intermediate_size", "n_layers_in_recurrent_block",
            "vocab_size", "block_size", "mean_recurrence", "mean_backprop_depth",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is below 1")
        if self.n_embd % self.n_heads or self.head_dim % 2:
            raise ConfigError(
                f"n_embd={self.n_embd} does not give {self.n_heads} heads of an even size, which rotation needs"
            )
        if (kind := self.rope_parameters["rope_type"]) not in ROTATIONS:
            raise ConfigError(f"unknown rope_type {kind!r}{closest(str(kind), ROTATIONS)}")
        if self.n_heads % self.num_key_value_heads:
            raise ConfigError(f"num_key_value_heads={self.num_key_value_heads} does not divide n_heads={self.n_heads}")
        if self.qk_bias and self.num_key_value_heads != self.n_heads:
            raise ConfigError("qk_bias has one row per head for queries and keys, so it needs as many of both")


def architecture_in(auto_map: dict[str, str] | None) -> Architecture | None:
    """Return ``"llama"`` where ``auto_map`` names a module of it; the published Huginn's own module says nothing."""
    return "llama" if "llama" in str((auto_map or {}).get("AutoModelForCausalLM", "")).lower() else None
