"""Configuration of full fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FullConfig:
    """The dense control of Path-Lock: every parameter of the host is trained, nothing is added (SFT-only)."""
