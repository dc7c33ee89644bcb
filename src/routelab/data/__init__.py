"""Data: the mini-world, loaders of local files and hub names, chats. Imports nothing heavy."""

from routelab.data.chat import strip_calculator, to_messages
from routelab.data.mini_world import MiniWorld
from routelab.data.sources import data_root, load_rows

__all__ = ["MiniWorld", "data_root", "load_rows", "strip_calculator", "to_messages"]
