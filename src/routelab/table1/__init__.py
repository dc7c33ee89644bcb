"""Table 1 of the task-routing paper (arXiv 2606.14398): its cells, and the grid that runs them."""

from routelab.table1.spec import CellSpec, grid

__all__ = ["CellSpec", "grid"]
