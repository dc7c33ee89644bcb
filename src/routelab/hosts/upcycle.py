"""Turn a dense Llama-like model into a Mixture-of-Experts model of the Mixtral architecture."""

from __future__ import annotations

import copy
from typing import Literal

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights

from routelab.errors import ConfigError, HostError, closest
from routelab.hosts.clustering import balanced_clusters

Method = Literal["split", "copy"]
RouterInit = Literal["random", "zeros"]

METHODS = ("split", "copy")
ROUTER_INITS = ("random", "zeros")
DENSE_HOSTS = (LlamaForCausalLM, MistralForCausalLM)


def upcycle(
    model: PreTrainedModel,
    *,
    experts: int,
    top_k: int,
    method: Method = "split",
    seed: int = 0,
    router_init: RouterInit = "random",
) -> MixtralForCausalLM:
    """Return a ``MixtralForCausalLM`` whose experts are made from the MLPs of ``model``, which stays as it is.

    ``method="split"`` divides each MLP's neurons into ``experts`` equal groups by :func:`balanced_clusters` of its
    gate rows (as MoEfication does, arXiv 2110.01786). Mixtral renormalises the weights of the chosen experts to sum
    1, so ``down_proj`` is multiplied by ``top_k``: with all experts chosen and equal weights 1/k,
    ``Σ_e (1/k)·k·E_e(x)`` is the dense MLP. The factor belongs to this ``top_k``; changing ``num_experts_per_tok``
    later rescales the outputs.

    ``method="copy"`` makes every expert a copy of the MLP (sparse upcycling, arXiv 2212.05055): the weights sum to
    1, so the outputs are the dense model's under any router.

    ``router_init`` is ``"random"``, ``N(0, initializer_range)`` by ``seed``, or ``"zeros"``, equal weights everywhere
    (with ``top_k < experts`` the same experts then serve every token). Neither knows which expert a token needs; a few
    thousand tokens of text give a split far better routers: :func:`routelab.hosts.router_fit.fit_routers`.

    Shapes, with I neurons, E experts, width d: ``experts.gate_up_proj`` [E, 2I/E, d], ``experts.down_proj`` [E, d, I/E]
    (I in place of I/E for copies), ``gate.weight`` [E, d]; dtype of ``model``. Tied embeddings stay tied.

    Raises:
        HostError: ``model`` is not a plain Llama or Mistral causal LM, or has biases, which Mixtral lacks.
        ConfigError: ``experts`` does not divide the neurons, ``top_k`` is not in 1..experts, or an unknown word.
    """
    if method not in METHODS:
        raise ConfigError(f"unknown upcycling method {method!r}{closest(method, METHODS)}")
    if router_init not in ROUTER_INITS:
        raise ConfigError(f"unknown router_init {router_init!r}{closest(router_init, ROUTER_INITS)}")
    if experts < 2:
        raise ConfigError(f"experts={experts}: a Mixture-of-Experts needs at least 2")
    if not 1 <= top_k <= experts:
        raise ConfigError(f"top_k={top_k} is not in 1..{experts} (experts)")
    refuse_unsupported(model)

    config = mixtral_config(model, experts=experts, top_k=top_k, method=method)
    with no_init_weights():
        moe = AutoModelForCausalLM.from_config(
            config, dtype=model.dtype, attn_implementation=model.config._attn_implementation
        )
    moe.load_state_dict(_moe_state(model, config, method, router_init, seed))
    moe.tie_weights()
    moe.generation_config = copy.deepcopy(model.generation_config)
    return moe.to(model.device).train(model.training)


def refuse_unsupported(model: PreTrainedModel) -> None:
    """Raise :class:`HostError` unless ``model`` is a Llama or Mistral causal LM without biases."""
    if not isinstance(model, DENSE_HOSTS):
        kind = getattr(getattr(model, "config", None), "model_type", "unknown")
        raise HostError(
            f"cannot upcycle {type(model).__name__} (model type {kind!r}): the Mixtral architecture can hold the "
            f"weights of {' and '.join(host.__name__ for host in DENSE_HOSTS)} only"
        )
    biased = [name for name, _ in model.named_parameters() if name.endswith(".bias")]
    if biased:
        raise HostError(
            f"cannot upcycle {type(model).__name__}: {biased[0]} and {len(biased) - 1} more are biases, "
            "and the Mixtral architecture has none"
        )


def mixtral_config(model: PreTrainedModel, *, experts: int, top_k: int, method: Method) -> MixtralConfig:
    """Return the Mixtral configuration that holds the weights of ``model`` with ``experts`` experts."""
    dense = model.config
    neurons = dense.intermediate_size // experts if method == "split" else dense.intermediate_size
    same = (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
        "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps", "use_cache", "pad_token_id",
        "bos_token_id", "eos_token_id", "tie_word_embeddings", "attention_dropout", "rope_parameters",
    )  # fmt: skip
    return MixtralConfig(
        **{name: copy.deepcopy(getattr(dense, name)) for name in same},
        sliding_window=getattr(dense, "sliding_window", None),
        intermediate_size=neurons,
        num_local_experts=experts,
        num_experts_per_tok=top_k,
    )


def _moe_state(
    model: PreTrainedModel, config: MixtralConfig, method: Method, init: RouterInit, seed: int
) -> dict[str, Tensor]:
    """Return the state dict of the MoE model: everything but the MLPs under its own name, the MLPs as experts."""
    dense = model.state_dict()
    state = {name: tensor for name, tensor in dense.items() if ".mlp." not in name}
    generator = torch.Generator().manual_seed(seed)
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}.mlp"
        gate, up, down = (dense[f"{prefix}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        if method == "split":
            groups = balanced_clusters(gate, config.num_local_experts, seed=seed + layer)
        else:
            groups = torch.arange(gate.shape[0]).expand(config.num_local_experts, -1)
        groups = groups.to(gate.device)
        scale = config.num_experts_per_tok if method == "split" else 1
        state[f"{prefix}.experts.gate_up_proj"] = torch.cat([gate[groups], up[groups]], dim=1)
        state[f"{prefix}.experts.down_proj"] = down.T[groups].transpose(1, 2) * scale
        router = torch.zeros(config.num_local_experts, config.hidden_size)
        if init == "random":
            router.normal_(std=config.initializer_range, generator=generator)
        state[f"{prefix}.gate.weight"] = router.to(gate)
    return state
