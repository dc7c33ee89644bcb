"""Tables in a terminal: whatever its width, every word is there whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from routelab.report.tables import Table
from routelab.report.terminal import print_table

COLUMNS = ["arm", "new parameters", "trained parameters", "optimizer state", "GPU time", "matched"]
ROWS = [
    ["AAR", "1,889,600", "3,986,816", "45.6 MiB", "2.6 h A100, 0.8 h H100", "aar: layers 1, 2, 3, 4, 5, 6, 7, 8, 9"],
    ["routing-only", "0", "2,097,152", "24.0 MiB", "2.6 h A100, 0.8 h H100", "routing_only: layers 0, 1, 2, 3"],
]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_every_word_of_a_table_is_printed(width: int) -> None:
    printed = io.StringIO()
    print_table(Console(file=printed, width=width), Table("Arms", COLUMNS, ROWS, note="A note.", text=frozenset()))
    shown = printed.getvalue()
    words = shown.replace(";", " ").split()
    for row in ROWS:
        for word in " ".join(row).split():
            assert word in words
    assert max(map(len, shown.splitlines())) <= width
    assert "A note." in shown
