"""``routelab bench``: speed and memory against peers, as ratios within one process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from routelab.cli.common import console, quiet, writable

app = typer.Typer(help="Speed and memory against peers, as ratios within one process.", no_args_is_help=True)

Passes = Annotated[int, typer.Option(min=1, help="Interleaved passes; medians are reported.")]
Dtype = Annotated[str, typer.Option(help="As torch calls it.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Out = Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.", callback=writable)]


@app.command()
def window(
    length: Annotated[list[int], typer.Option(min=1, help="Sequence lengths. Repeatable.")] = [512, 1024, 2048, 4096],  # noqa: B006
    head_dim: Annotated[list[int], typer.Option(min=1, help="Head sizes. Repeatable.")] = [64, 128, 192, 256],  # noqa: B006
    layer_length: Annotated[int, typer.Option(min=0, help="Tokens of the OLMoE layer; 0 leaves it out.")] = 2048,
    passes: Passes = 9,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    out: Out = None,
) -> None:
    """Time and peak memory of window attention against eager attention and plain SDPA."""
    quiet()
    from routelab.bench.window import bench_window, window_tables

    with console(stderr=True).status("measuring") as status:
        result = bench_window(
            length,
            head_dims=head_dim,
            passes=passes,
            layer_length=layer_length or None,
            dtype=dtype,
            device=device,
            progress=status.update,
        )
    _show(result, window_tables(result), out)


@app.command()
def pathlock(
    batch: Annotated[int, typer.Option(min=2)] = 4,
    length: Annotated[int, typer.Option(min=1, help="Tokens of a sequence.")] = 512,
    layers: Annotated[int, typer.Option(min=1)] = 4,
    passes: Passes = 9,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    out: Out = None,
) -> None:
    """Time and memory of path-locked experts against the dense host and against running both experts masked."""
    quiet()
    from routelab.bench.pathlock import bench_pathlock, pathlock_tables

    with console(stderr=True).status("measuring") as status:
        result = bench_pathlock(
            batch=batch,
            length=length,
            layers=layers,
            passes=passes,
            dtype=dtype,
            device=device,
            progress=status.update,
        )
    _show(result, pathlock_tables(result), out)


@app.command()
def table1(
    tasks: Annotated[int, typer.Option(min=1)] = 20,
    experts: Annotated[int, typer.Option(min=1)] = 5,
    passes: Passes = 5,
    out: Out = None,
) -> None:
    """Time of a Table 1 cell against a plain PyTorch loop of the same model on the same batches."""
    quiet()
    from routelab.bench.table1 import bench_table1, table1_tables
    from routelab.data.sources import data_root
    from routelab.table1 import CellSpec
    from routelab.table1.cell import knowledge_of

    root = data_root() if os.environ.get("ROUTELAB_DATA") else None
    knowledge, source = knowledge_of(CellSpec(tasks=tasks, experts=experts), root)
    with console(stderr=True).status(f"measuring on {source} relations"):
        result = bench_table1(knowledge, experts=experts, passes=passes)
    _show(result, table1_tables(result), out)


@app.command()
def working_set(
    length: Annotated[list[int], typer.Option(min=1, help="Repeatable.")] = [512, 1024, 2048, 4096, 8192],  # noqa: B006
    block_size: Annotated[list[int], typer.Option(min=1, help="Block sizes. Repeatable.")] = [16, 32, 64, 128],  # noqa: B006
    heads: Annotated[int, typer.Option(min=1)] = 8,
    head_dim: Annotated[int, typer.Option(min=1)] = 96,
    density: Annotated[float, typer.Option(help="Of the random supports, in (0, 1].")] = 0.37,
    backend: Annotated[str, typer.Option(help="auto, native, gather, flex, triton or reference.")] = "auto",
    host: Annotated[str | None, typer.Option(help="Take the supports that this recurrent host finds.")] = None,
    block_length: Annotated[int, typer.Option(min=0, help="Tokens of a block of Huginn's width; 0: none.")] = 0,
    memory_length: Annotated[int, typer.Option(min=0, help="Tokens of a forward of the host; 0: none.")] = 0,
    passes: Passes = 5,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    out: Out = None,
) -> None:
    """Discovery steps, late reuse and a whole trajectory of WISE's attention against SDPA; a whole block; memory."""
    quiet()
    from routelab.bench.working_set import bench_working_set, working_set_tables
    from routelab.bench.working_set_model import bench_block, bench_memory, block_table, host_supports, memory_table

    with console(stderr=True).status("measuring") as status:
        result = bench_working_set(
            length,
            block_sizes=block_size,
            supports=None if host is None else host_supports(host, heads),
            heads=heads,
            head_dim=head_dim,
            density=density,
            backend=backend,
            passes=passes,
            dtype=dtype,
            device=device,
            progress=status.update,
        )
        tables = working_set_tables(result)
        if block_length:
            status.update("a block of Huginn's width")
            result["block"] = bench_block(block_length, density=density, passes=passes)
            tables.append(block_table(result["block"]))
        if memory_length:
            status.update("memory of a whole host")
            result["memory"] = bench_memory(host or "mini-recurrent", memory_length)
            tables.append(memory_table(result["memory"]))
    _show(result, tables, out)


def _show(result: dict[str, Any], tables: Iterable[tuple[str, list[str], list[list[str]]]], out: Path | None) -> None:
    from routelab.report.tables import Table
    from routelab.report.terminal import print_table
    from routelab.rundir import write_json

    for title, columns, rows in tables:
        print_table(console(), Table(title, columns, rows, text=frozenset({"pass", "form"})))
    if out is not None:
        write_json(out, result)
