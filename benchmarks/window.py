"""Time and memory of the window operator: prints the tables of docs/window.md and writes the numbers as JSON.

OMP_NUM_THREADS=2 python benchmarks/window.py --out window.json
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from routelab.bench.window import bench_window, window_tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--head-dims", type=int, nargs="*", default=[64, 128, 192, 256])
    parser.add_argument("--layer-length", type=int, default=2048, help="0 leaves the OLMoE layer out")
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()

    console = Console()
    with console.status("") as status:
        result = bench_window(
            arguments.lengths,
            head_dims=arguments.head_dims,
            passes=arguments.passes,
            layer_length=arguments.layer_length or None,
            dtype=arguments.dtype,
            device=arguments.device,
            progress=status.update,
        )
    for title, columns, rows in window_tables(result):
        table = Table(*columns, title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if arguments.out:
        temporary = arguments.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, arguments.out)


if __name__ == "__main__":
    main()
