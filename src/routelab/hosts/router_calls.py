"""What the routers of a host see and decide in one forward call of the model, with arguments of our own beside its.

The raw router logits are the host's own record (``output_router_logits`` of its backbone), with their gradients, and
right under gradient checkpointing. The model itself is not asked for them: it would add its own balance loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from routelab.errors import HostError
from routelab.hosts.calls import call_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from routelab.hosts.locate import Host


@dataclass
class RouterCall:
    """One forward call of ``shape`` ``[B, n]``: arguments of the host's, those ``taken`` out of it that are ours, and,
    once the backbone has run, the raw router ``logits`` ``[B·n, E]`` of every routed layer and the cache."""

    shape: tuple[int, int]
    mask: Tensor | None
    positions: Tensor | None
    labels: Tensor | None
    cache: Any
    taken: dict[str, Tensor]
    logits: tuple[Tensor, ...] = ()
    cache_after: Any = None

    @property
    def continues(self) -> bool:
        """Whether the call goes on from a cache that already holds tokens."""
        return self.cache is not None and self.cache.get_seq_length() > 0

    @property
    def packed(self) -> bool:
        """Whether positions restart inside a row that has no mask: several documents."""
        if self.mask is not None or self.positions is None:
            return False
        return bool((self.positions[..., 1:] <= self.positions[..., :-1]).any())

    def real(self) -> Tensor | None:
        """Return bool ``[B, n]``, true where a token is no padding; None where nothing says that any is.

        Raises:
            HostError: the attention mask is not one of tokens.
        """
        if self.mask is None:
            return None
        if self.mask.ndim == 2:
            return self.mask[:, -self.shape[1] :].ne(0)
        if self.mask.ndim != 4 or self.continues:
            raise HostError(
                f"the attention mask has {self.mask.ndim} dimensions and does not say which tokens are padding; give "
                "one of shape [rows, tokens]"
            )
        # What generate makes for a static cache: a token that is no padding sees itself.
        itself = self.mask[:, 0].diagonal(dim1=-2, dim2=-1)[:, : self.shape[1]]
        return itself if itself.dtype == torch.bool else itself.eq(0)


class Watcher(Protocol):
    """Who is told about calls."""

    def before_call(self, call: RouterCall) -> bool:
        """See a call that begins; return whether the router logits are wanted."""

    def after_backbone(self, call: RouterCall) -> None:
        """See the logits and the cache."""

    def after_call(self, call: RouterCall, output: Any) -> None:
        """See what the model returns."""


def watch_calls(host: Host, names: frozenset[str], watcher: Watcher) -> Callable[[], None]:
    """Let ``watcher`` see every forward call of a host's model, which from now on takes the arguments ``names`` too.

    Returns the reversal.
    """
    watching = _Watching(names, watcher)
    hooks = (
        host.model.register_forward_pre_hook(watching.begin, with_kwargs=True),
        host.backbone.register_forward_pre_hook(watching.ask, with_kwargs=True),
        host.backbone.register_forward_hook(watching.keep, with_kwargs=True),
        host.model.register_forward_hook(watching.end, with_kwargs=True, always_call=True),
    )
    return partial(_remove, hooks)


class _Watching:
    """Four hooks and the call in progress."""

    def __init__(self, names: frozenset[str], watcher: Watcher) -> None:
        self.names, self.watcher = names, watcher
        self.call: RouterCall | None = None
        self.wanted = False

    def begin(self, model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        taken = {name: kwargs[name] for name in self.names if kwargs.get(name) is not None}
        own = {name: value for name, value in kwargs.items() if name not in self.names}
        self.call = _call(call_arguments(model, args, own), taken)
        self.wanted = self.watcher.before_call(self.call)
        return args, own

    def ask(self, backbone: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (args, {**kwargs, "output_router_logits": True}) if self.call is not None and self.wanted else None

    def keep(self, backbone: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.call is None:
            return
        if self.wanted:
            self.call.logits = tuple(output.router_logits)
        self.call.cache_after = getattr(output, "cache", None)
        self.watcher.after_backbone(self.call)

    def end(self, model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        call, self.call = self.call, None
        if call is not None and output is not None:  # None: the call raised
            self.watcher.after_call(call, output)


def _call(given: dict[str, Any], taken: dict[str, Tensor]) -> RouterCall:
    inputs = given.get("input_ids")
    inputs = given.get("inputs_embeds") if inputs is None else inputs
    if inputs is None:
        raise HostError("a forward call needs input_ids or inputs_embeds")
    rows, length = inputs.shape[:2]
    for name, tensor in taken.items():
        if tensor.shape != (rows, length):
            raise HostError(f"{name} has shape {tuple(tensor.shape)}; this call has {rows} rows of {length} tokens")
    return RouterCall(
        shape=(rows, length),
        mask=given.get("attention_mask"),
        positions=given.get("position_ids"),
        labels=given.get("labels"),
        cache=given.get("cache", given.get("past_key_values")),
        taken=taken,
    )


def _remove(hooks: tuple[Any, ...]) -> None:
    for hook in hooks:
        hook.remove()
