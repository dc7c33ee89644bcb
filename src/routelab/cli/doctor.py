"""``routelab doctor``: what is installed here, and what can be fast."""

from __future__ import annotations

from routelab.cli.common import console, quiet


def doctor() -> None:
    """Say what is installed, and which fast paths can be used here and why not."""
    quiet()
    from routelab.doctor import environment, fast_paths
    from routelab.report.terminal import print_pairs

    print_pairs(console(), "environment", environment())
    print_pairs(console(), "fast paths", fast_paths())
