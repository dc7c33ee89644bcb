"""``python -m routelab.cli``."""

from routelab.cli import main

main()
