"""Routing-only fine-tuning: the control that AAR is measured against (arXiv 2609.20974, section 4.1)."""

from __future__ import annotations

from routelab.hosts.routing import require_router_gradient
from routelab.methods.base import RouterMethod


class RoutingOnly(RouterMethod):
    """Train ``W_r`` of every MoE layer and nothing else. Attached and untrained, the host's logits are unchanged."""

    name = "routing_only"

    @property
    def claims(self) -> frozenset[str]:
        """The routers, and what they are trained on: a control with a second loss would be none."""
        return super().claims | {"router objective"}

    def place(self) -> None:
        require_router_gradient(self.host)
        super().place()
