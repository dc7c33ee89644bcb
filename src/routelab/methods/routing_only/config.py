"""Configuration of routing-only fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RoutingOnlyConfig:
    """The control of AAR: the router weights ``W_r`` of every MoE layer are trained, nothing is added."""
