"""Small trained hosts that ship with the package, so that everything can be tried offline in minutes."""

from routelab.hosts.minis.loader import available, load_mini, mini_path

__all__ = ["available", "load_mini", "mini_path"]
