"""Make a depth-recurrent model of a pretrained Llama's layers (retrofitted recurrence, arXiv 2511.07384)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from transformers.initialization import no_init_weights

from routelab.errors import ConfigError, HostError
from routelab.hosts.recurrent.config import RecurrentConfig
from routelab.hosts.recurrent.model import RecurrentForCausalLM


def convert(
    model: LlamaForCausalLM,
    *,
    prelude: Sequence[int],
    core: Sequence[int],
    coda: Sequence[int],
    mean_recurrence: int = 32,
    mean_backprop_depth: int = 8,
) -> RecurrentForCausalLM:
    """Return a Recurrent-Llama whose blocks are copies of layers of ``model``, which stays as it is.

    ``prelude``, ``core`` and ``coda`` are layer indices; the paper takes the first layers, a run of late ones and the
    last, and drops those between. The one new tensor, the adapter on ``[state ∥ prelude output]``, starts as
    ``[0 | I]``: it passes the prelude's output on. So before any training **one pass through the core equals the Llama
    of the layers prelude + core + coda**, in that order (the whole Llama, where they are all its layers), from any
    initial state; and since the state is ignored, more passes repeat the first. Training then fills the zero half,
    whose gradient is not zero.

    Dtype, device, tied output weights and the rotation are those of ``model``.

    Raises:
        HostError: ``model`` is not a plain Llama, or has biases or a head size other than width / heads.
        ConfigError: a layer that does not exist, or an empty core.
    """
    _require_plain(model)
    count = model.config.num_hidden_layers
    for name, layers in (("prelude", prelude), ("core", core), ("coda", coda)):
        if wrong := [layer for layer in layers if not 0 <= layer < count]:
            raise ConfigError(f"{name} names layer {wrong[0]}; this model has layers 0 to {count - 1}")
    if not len(core):
        raise ConfigError("core names no layer, so nothing would recur")
    config = _config(model, len(prelude), len(core), len(coda), mean_recurrence, mean_backprop_depth)
    with no_init_weights():
        recurrent = RecurrentForCausalLM(config).to(dtype=model.dtype)
    recurrent.load_state_dict(_state(model, prelude, core, coda))
    recurrent.tie_weights()
    recurrent.generation_config = copy.deepcopy(model.generation_config)
    recurrent.generation_config.cache_implementation = None
    return recurrent.to(model.device).train(model.training)


def _require_plain(model: LlamaForCausalLM) -> None:
    if not isinstance(model, LlamaForCausalLM):
        raise HostError(
            f"cannot make a {type(model).__name__} recurrent: only a LlamaForCausalLM has the blocks for it"
        )
    biased = [name for name, _ in model.named_parameters() if name.endswith(".bias")]
    if biased:
        raise HostError(f"cannot make this Llama recurrent: {biased[0]} is a bias, which its blocks lack")
    config = model.config
    if config.head_dim * config.num_attention_heads != config.hidden_size:
        raise HostError(
            f"cannot make this Llama recurrent: {config.num_attention_heads} heads of {config.head_dim} are not its "
            f"width {config.hidden_size}"
        )
    if config.hidden_act != "silu":
        raise HostError(f"cannot make this Llama recurrent: its activation is {config.hidden_act!r}, not 'silu'")


def _config(
    model: LlamaForCausalLM, prelude: int, core: int, coda: int, mean_recurrence: int, mean_backprop_depth: int
) -> RecurrentConfig:
    llama = model.config
    return RecurrentConfig(
        architecture="llama",
        n_embd=llama.hidden_size,
        n_heads=llama.num_attention_heads,
        num_key_value_heads=llama.num_key_value_heads,
        intermediate_size=llama.intermediate_size,
        n_layers_in_prelude=prelude,
        n_layers_in_recurrent_block=core,
        n_layers_in_coda=coda,
        vocab_size=llama.vocab_size,
        padding_multiple=1,
        block_size=llama.max_position_embeddings,
        mean_recurrence=mean_recurrence,
        mean_backprop_depth=mean_backprop_depth,
        norm_eps=llama.rms_norm_eps,
        rope_parameters=copy.deepcopy(llama.rope_parameters),
        tie_embeddings=llama.tie_word_embeddings,
        **{name: getattr(llama, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")},
    )


def _state(
    model: LlamaForCausalLM, prelude: Sequence[int], core: Sequence[int], coda: Sequence[int]
) -> dict[str, Tensor]:
    llama = model.state_dict()
    embedding = llama["model.embed_tokens.weight"]
    identity = torch.eye(embedding.shape[1], dtype=embedding.dtype, device=embedding.device)
    state = {
        "transformer.wte.weight": embedding,
        "transformer.adapter.weight": torch.cat((torch.zeros_like(identity), identity), dim=1),
        "transformer.ln_f.weight": llama["model.norm.weight"],
        "lm_head.weight": llama["lm_head.weight"],
    }
    for part, layers in (("prelude", prelude), ("core_block", core), ("coda", coda)):
        for index, layer in enumerate(layers):
            for name, tensor in _block(llama, f"model.layers.{layer}").items():
                state[f"transformer.{part}.{index}.{name}.weight"] = tensor
    return state


def _block(llama: dict[str, Tensor], layer: str) -> dict[str, Tensor]:
    def weight(name: str) -> Tensor:
        return llama[f"{layer}.{name}.weight"]

    return {
        "attn.Wqkv": torch.cat([weight(f"self_attn.{part}_proj") for part in "qkv"]),
        "attn.proj": weight("self_attn.o_proj"),
        "mlp.fc": torch.cat([weight("mlp.gate_proj"), weight("mlp.up_proj")]),
        "mlp.proj": weight("mlp.down_proj"),
        "norm_1": weight("input_layernorm"),
        "norm_2": weight("post_attention_layernorm"),
    }
