"""A small world to train and test small models in: arithmetic, facts, paragraphs. Pure Python, no torch."""

from routelab.data.mini_world.world import MiniWorld

__all__ = ["MiniWorld"]
