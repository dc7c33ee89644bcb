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

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from routelab.errors import HostError
from routelab.hosts.calls import call_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from routelab.hosts.locate import Host


class _Guard:
    """Three hooks and what they tell each other about the call in progress."""

    def __init__(self, num_experts: int, top_k: int) -> None:
        self.num_experts, self.top_k = num_experts, top_k
        self.mask: Tensor | None = None

    def before(self, model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Keep the host from computing the loss where it would crash."""
        self.mask = None
        given = call_arguments(model, args, kwargs)
        wanted = given.get("output_router_logits")
        wanted = model.config.output_router_logits if wanted is None else wanted
        inputs = given.get("input_ids")
        inputs = given.get("inputs_embeds") if inputs is None else inputs
        mask = given.get("attention_mask")
        if not wanted or mask is None or inputs is None or mask.ndim != 2 or mask.shape[1] == inputs.shape[1]:
            return None
        if given.get("return_dict") is False:
            raise HostError("output_router_logits with a cache needs return_dict=True")
        self.mask = mask[:, -inputs.shape[1] :]
        return (), {**given, "output_router_logits": False}

    def record(self, backbone: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the backbone return the router logits all the same."""
        return None if self.mask is None else (args, {**kwargs, "output_router_logits": True})

    def after(self, model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Compute the loss with the host's own function from these tokens' part of the mask."""
        if self.mask is None:
            return
        mask, self.mask = self.mask, None
        load_balancing_loss = sys.modules[type(model).__module__].load_balancing_loss_func
        output.aux_loss = load_balancing_loss(output.router_logits, self.num_experts, self.top_k, mask)
        if output.loss is not None:
            output.loss = output.loss + model.router_aux_loss_coef * output.aux_loss.to(output.loss.device)


def guard_aux_loss(host: Host) -> Callable[[], None]:
    """Install the guard on a host and return a function that removes it."""
    guard = _Guard(host.num_experts, host.top_k)
    hooks = (
        host.model.register_forward_pre_hook(guard.before, with_kwargs=True),
        host.backbone.register_forward_pre_hook(guard.record, with_kwargs=True),
        host.model.register_forward_hook(guard.after, with_kwargs=True),
    )
    return partial(_remove, hooks)


def _remove(hooks: tuple[RemovableHandle, ...]) -> None:
    for hook in hooks:
        hook.remove()
