"""The methods there are: a literal table, so that adding one touches a single line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from routelab.errors import ConfigError, closest

if TYPE_CHECKING:
    from routelab.methods.base import Method

#: name -> (configuration class, method class). Imported on use: configurations never import torch.
METHODS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "aar": ("routelab.methods.aar.config:AARConfig", "routelab.methods.aar.method:AAR"),
        "full": ("routelab.methods.full.config:FullConfig", "routelab.methods.full.method:Full"),
        "pathlock": ("routelab.methods.pathlock.config:PathLockConfig", "routelab.methods.pathlock.method:PathLock"),
        "routing_only": (
            "routelab.methods.routing_only.config:RoutingOnlyConfig",
            "routelab.methods.routing_only.method:RoutingOnly",
        ),
        "taskrouting": (
            "routelab.methods.taskrouting.config:TaskRoutingConfig",
            "routelab.methods.taskrouting.method:TaskRouting",
        ),
        "wise": ("routelab.methods.wise.config:WISEConfig", "routelab.methods.wise.method:WISE"),
    }
)


def _load(path: str) -> Any:
    module, name = path.split(":")
    return getattr(import_module(module), name)


def config_class(name: str) -> type:
    """Return the configuration class of a method.

    Raises:
        ConfigError: there is no such method.
    """
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}{closest(name, METHODS)}")
    config: type = _load(METHODS[name][0])
    return config


def untrained() -> list[str]:
    """Return the names of the methods that work without training."""
    return [name for name, (_, path) in METHODS.items() if not _load(path).trains]


def method_class(config: object) -> type[Method]:
    """Return the method class that a configuration object belongs to.

    Raises:
        ConfigError: the object is no method's configuration.
    """
    for config_path, method_path in METHODS.values():
        if type(config).__name__ == config_path.split(":")[1] and isinstance(config, _load(config_path)):
            found: type[Method] = _load(method_path)
            return found
    known = [config_path.split(":")[1] for config_path, _ in METHODS.values()]
    raise ConfigError(f"{config!r} is no method's configuration{closest(type(config).__name__, known)}")
