"""Placement of attention-aware routing in a host, and its removal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from routelab.errors import HostError, LayerError
from routelab.hosts.attention import WindowRecord, place_record, use_window_attention
from routelab.hosts.locate import Host
from routelab.hosts.routing import require_router_gradient, select_experts
from routelab.hosts.swap import specialise
from routelab.methods.aar.config import AARConfig, select_layers
from routelab.methods.aar.layer import AttentionRouter
from routelab.methods.aar.placebo import constant_window, shuffle_orders, shuffled_window
from routelab.methods.base import RouterMethod, Summary

if TYPE_CHECKING:
    from routelab.hosts.locate import Router

_CHILD = "attention_router"


class WindowSource:
    """The window that a router reads: its record, through the placebo if the configuration names one."""

    def __init__(self, record: WindowRecord, config: AARConfig) -> None:
        self.record = record
        self.kind = config.window_source
        self.orders = shuffle_orders(config.window, config.seed) if self.kind == "shuffled" else None

    def read(self, tokens: int) -> Tensor:
        """Return ``[tokens, M]``."""
        window = self.record.read(tokens)
        if self.kind == "constant":
            return constant_window(window)
        if self.orders is None:
            return window
        if self.record.positions is None:
            raise HostError("window_source='shuffled' needs position_ids, which this host's attention does not receive")
        assert self.record.window is not None
        return shuffled_window(self.record.window, self.record.positions, self.orders).reshape(window.shape)


class AttentionAware(nn.Module):
    """Behaviour mixed into a host's router class: equation 5 in place of ``W_r h``, then the host's own selection."""

    weight: nn.Parameter
    hidden_dim: int
    top_k: int
    attention_router: AttentionRouter
    window_source: WindowSource
    renormalise: bool
    float32_weights: bool

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = hidden_states.reshape(-1, self.hidden_dim)
        standard = F.linear(hidden, self.weight)
        logits = self.attention_router(hidden, standard, self.window_source.read(hidden.shape[0]))
        dtype = torch.float32 if self.float32_weights else hidden.dtype
        return select_experts(logits, top_k=self.top_k, renormalise=self.renormalise, dtype=dtype)


class AAR(RouterMethod):
    """Attention-aware routing, attached."""

    name = "aar"
    config: AARConfig

    def __init__(self, host: Host, config: AARConfig) -> None:
        super().__init__(host, config)
        allowed = [layer.index for layer in host.routed if layer.attention is not None]
        self.layers = select_layers(config.layers, model_type=host.model_type, depth=len(host.layers), allowed=allowed)
        source = config.source_layer
        if source is not None and (source not in allowed or source > self.layers[0]):
            usable = [index for index in allowed if index <= self.layers[0]]
            raise LayerError(
                f"window_source 'layer:{source}' must be a layer with softmax attention that runs before the chosen "
                f"ones; allowed: {', '.join(map(str, usable))}"
            )

    @property
    def claims(self) -> frozenset[str]:
        return super().claims | {"attention function"}

    def place(self) -> None:
        require_router_gradient(self.host)
        super().place()
        self.on_detach(use_window_attention(self.host.model))
        generator = torch.Generator().manual_seed(self.config.seed)
        sources: dict[int, WindowRecord] = {}
        for index in self.layers:
            source = index if self.config.source_layer is None else self.config.source_layer
            if source not in sources:
                sources[source] = WindowRecord(self.config.window, self.config.include_self)
                attention = self.host.layers[source].attention
                assert attention is not None
                self.on_detach(place_record(attention, sources[source]))
            self._place_router(self.host.routers[index], sources[source], generator)

    def _place_router(self, router: Router, record: WindowRecord, generator: torch.Generator) -> None:
        added = AttentionRouter(
            hidden_size=self.host.hidden_size,
            num_experts=self.host.num_experts,
            window=self.config.window,
            views=self.config.views,
            init_std=self.config.init_std,
            gate_scale_init=self.config.gate_scale_init,
            generator=generator,
            device=router.weight.device,
        )
        attributes = {
            "window_source": WindowSource(record, self.config),
            "renormalise": self.host.renormalises,
            "float32_weights": self.host.family.float32_weights,
        }
        self.on_detach(specialise(router, AttentionAware, {_CHILD: added}, attributes))

    def routers(self) -> Iterator[tuple[int, AttentionRouter]]:
        """Yield ``(layer index, attention router)``."""
        for index in self.layers:
            yield index, getattr(self.host.routers[index], _CHILD)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from super().named_parameters()
        for index, router in self.routers():
            for name, parameter in router.named_parameters():
                yield f"layers.{index}.{_CHILD}.{name}", parameter

    def summary(self) -> Summary:
        routers = super().summary()
        new = sum(parameter.numel() for _, router in self.routers() for parameter in router.parameters())
        names = dict(zip(routers.layers, routers.modules, strict=True))
        return replace(
            routers,
            layers=self.layers,
            modules=tuple(names[index] for index in self.layers),
            new_parameters=new,
            details={
                "window": self.config.window,
                "views": self.config.views,
                "routers_trained": len(routers.layers),
            },
        )
