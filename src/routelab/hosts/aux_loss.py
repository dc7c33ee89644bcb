"""The load-balancing loss of a host beside a KV cache.

The hosts compute it from the routers' raw logits of the tokens in this call, weighted by the *whole* attention mask,
which crashes as soon as a cache makes the mask longer than the call. The guard computes it from the part of the mask
that belongs to these tokens; calls without a cache are left to the host.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from routelab.hosts.locate import Host


def guard_aux_loss(host: Host) -> Callable[[], None]:
    """Install the guard on a host and return a function that removes it."""
    model = host.model
    load_balancing_loss = sys.modules[type(model).__module__].load_balancing_loss_func
    pending: list[Tensor] = []

    def before(module: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        pending.clear()
        wanted = kwargs.get("output_router_logits")
        wanted = module.config.output_router_logits if wanted is None else wanted
        inputs = kwargs.get("input_ids", kwargs.get("inputs_embeds", args[0] if args else None))
        mask = kwargs.get("attention_mask")
        if not wanted or mask is None or inputs is None or mask.ndim != 2 or mask.shape[1] == inputs.shape[1]:
            return None
        pending.append(mask[:, -inputs.shape[1] :])
        return args, {**kwargs, "output_router_logits": False}

    def record_logits(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (args, {**kwargs, "output_router_logits": True}) if pending else None

    def after(module: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if not pending:
            return
        mask = pending.pop()
        output.aux_loss = load_balancing_loss(output.router_logits, host.num_experts, host.top_k, mask)
        if output.loss is not None:
            output.loss = output.loss + module.router_aux_loss_coef * output.aux_loss.to(output.loss.device)

    hooks = (
        model.register_forward_pre_hook(before, with_kwargs=True),
        host.backbone.register_forward_pre_hook(record_logits, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    )
    return partial(_remove, hooks)


def _remove(hooks: tuple[RemovableHandle, ...]) -> None:
    for hook in hooks:
        hook.remove()
