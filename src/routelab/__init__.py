"""Routing mechanisms for pretrained language models: attach, train, run, measure, show.

The names below are imported on first use, so that ``import routelab`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from routelab._version import __version__

if TYPE_CHECKING:
    from routelab.hosts.loading import load_host
    from routelab.methods.aar.config import AARConfig
    from routelab.methods.attachment import attach, attached, detach
    from routelab.methods.pathlock.config import PathLockConfig
    from routelab.methods.pathlock.resolve import resolve_modes
    from routelab.methods.routing_only.config import RoutingOnlyConfig
    from routelab.methods.saving import load, save
    from routelab.methods.taskrouting.config import TaskRoutingConfig
    from routelab.methods.wise.config import WISEConfig

__all__ = [
    "AARConfig",
    "PathLockConfig",
    "RoutingOnlyConfig",
    "TaskRoutingConfig",
    "WISEConfig",
    "__version__",
    "attach",
    "attached",
    "detach",
    "load",
    "load_host",
    "resolve_modes",
    "save",
]

_HOME = {
    "AARConfig": "routelab.methods.aar.config",
    "PathLockConfig": "routelab.methods.pathlock.config",
    "RoutingOnlyConfig": "routelab.methods.routing_only.config",
    "TaskRoutingConfig": "routelab.methods.taskrouting.config",
    "WISEConfig": "routelab.methods.wise.config",
    "attach": "routelab.methods.attachment",
    "attached": "routelab.methods.attachment",
    "detach": "routelab.methods.attachment",
    "load": "routelab.methods.saving",
    "load_host": "routelab.hosts.loading",
    "resolve_modes": "routelab.methods.pathlock.resolve",
    "save": "routelab.methods.saving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'routelab' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
