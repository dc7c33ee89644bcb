"""Results, traces and lists on a terminal, with rich."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from routelab.report.page import Page
from routelab.report.tables import Table
from routelab.report.theme import metric_of

if TYPE_CHECKING:
    from rich.console import Console


def print_page(console: Console, page: Page) -> None:
    """Print the claim, the verdict with its interval, and every table."""
    console.print()
    console.print(Text(page.claim, style="bold"))
    if page.verdict is not None:
        console.print(Text(f"{page.verdict.number}, 95% interval {page.verdict.interval}: {page.verdict.word}"))
        console.print(Text(page.verdict.reading, style="dim"))
    for entry in page.entries:
        console.print(Text.assemble("\n", (entry.name, "bold"), (f"  {entry.about}", "dim")))
        console.print(Text(entry.claim))
        if entry.verdict is not None:
            console.print(Text(f"{entry.verdict.number}, 95% interval {entry.verdict.interval}: {entry.verdict.word}"))
    for table in page.tables:
        console.print()
        print_table(console, table)


def print_table(console: Console, table: Table) -> None:
    """Print one table: words to the left, numbers to the right.

    Where the console is too narrow for the longest words of its columns, every row is a paragraph, so that nothing is
    cut off.
    """
    widths = _widths(table, console.width)
    if widths is None:
        rest = [
            (row[0], "; ".join(f"{column} {cell}" for column, cell in zip(table.columns[1:], row[1:], strict=True)))
            for row in table.rows
        ]
        print_pairs(console, table.title, rest)
        if table.note:
            console.print(Text(table.note, style="dim"))
        return
    drawn = _table(table.title)
    for i, column in enumerate(table.columns):
        left = i == 0 or column in table.text
        style = "bold" if i == 0 else None
        drawn.add_column(column, justify="left" if left else "right", style=style, width=widths[i])
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn)
    if table.note:
        console.print(Text(table.note, style="dim"))


def _widths(table: Table, available: int) -> list[int] | None:
    """Return widths of columns that break between words only, the rest of the room shared by need; None: too narrow."""
    columns = list(zip(table.columns, *table.rows, strict=True))
    least = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    wanted = [max(map(cell_len, column)) - width for column, width in zip(columns, least, strict=True)]
    room = available - sum(least) - 3 * len(columns)
    if room < 0:
        return None
    share = min(1.0, room / max(1, sum(wanted)))
    return [width + int(share * more) for width, more in zip(least, wanted, strict=True)]


def print_pairs(console: Console, title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names with a value each."""
    drawn = _table(title)
    drawn.show_header = False
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(Text(name), Text(value))
    console.print(drawn)


def print_summary(console: Console, who: str, summary: Mapping[str, Any]) -> None:
    """Print one evaluation: the number first, then what it is made of."""
    metric = metric_of(summary)
    value = summary[summary["metric"]]
    console.print(Text(f"{who} on {summary['task']}: {metric.label} {metric.show(value)}", style="bold"))
    facts = [("examples", str(summary["n"]))]
    if "length" in summary:
        answers = summary["n"] * summary["arguments"]["num_samples"]
        for unit, spread in summary["length"].items():
            text = f"mean {spread['mean']:.1f}, median {spread['median']:.0f}, 99th percentile {spread['p99']:.0f}"
            facts.append((f"{unit} per answer", text))
        facts.append(("cut off", f"{summary['truncated']} of {answers}"))
        facts.append(("without an answer", f"{summary['empty']} of {answers}"))
        facts += [(f"pass@{k}", metric.show(share)) for k, share in summary["pass_at_k"].items() if k != "1"]
    if "tokens" in summary:
        facts.append(("tokens scored", f"{summary['tokens']:,}"))
    facts.append(("seconds", f"{summary['seconds']:.1f}"))
    settings = dict(summary["arguments"])
    settings |= settings.pop("options")
    arguments = ", ".join(f"{key} {value}" for key, value in settings.items())
    print_pairs(console, "", [*facts, ("settings", arguments), ("data SHA-256", summary["data_sha256"])])


def print_trace(console: Console, traced: Mapping[str, Any]) -> None:
    """Print a trace: one table per layer, one row per token."""
    for method in traced["methods"]:
        console.print(Text(method, style="dim"))
    by_layer: dict[int, list[Mapping[str, Any]]] = {layer: [] for layer in traced["layers"]}
    for step in traced["steps"]:
        by_layer[step["layer"]].append(step)
    for layer, steps in by_layer.items():
        views = list(steps[0]["gates"])
        drawn = _table(f"layer {layer}")
        drawn.add_column("", justify="right", style="dim")
        drawn.add_column("token", style="bold", no_wrap=True)
        drawn.add_column("experts and weights", overflow="fold")
        for view in views:
            drawn.add_column(f"gate, {view}", justify="right")
        drawn.add_column("on first token", justify="right", no_wrap=True)
        for step in steps:
            chosen = zip(step["experts"], step["weights"], strict=True)
            drawn.add_row(
                str(step["position"]),
                Text(step["token"].replace("\n", "⏎")),
                _experts(chosen),
                *(f"{step['gates'][view]:.3f}" for view in views),
                _bar(step["first_token"]),
            )
        console.print(drawn)
        console.print()


def print_recurrence(console: Console, traced: Mapping[str, Any]) -> None:
    """Print a recurrent host's steps: the working set, what still moves, and where the last token looks."""
    drawn = _table(f"{traced['tokens']} tokens, blocks of {traced['block_size']}")
    for name in ("step", "blocks kept", "same as before", "state moved"):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.add_column("the last token looks at", overflow="fold")
    for step in traced["steps"]:
        looks = Text()
        for position, token, weight in step["looks"]:
            looks.append(f"{token.strip() or '⏎'}", style="bold").append(
                f"@{position}\u00a0{weight:.2f}  ", style="dim"
            )
        drawn.add_row(
            str(step["step"]),
            f"{100 * step['density']:.0f}%",
            _decimal(step["stability"]),
            _decimal(step["change"]),
            looks,
            end_section=step["step"] == traced["discovery_steps"],
        )
    console.print(drawn)
    console.print(
        Text(f"The line is where WISE freezes the working set, after step {traced['discovery_steps']}.", style="dim")
    )


def print_mode(console: Console, traced: Mapping[str, Any]) -> None:
    """Print how a path-locked model decided on a prompt, step by step."""
    mode, header = traced["mode"], traced["header"]
    where = "none: the whole text is the prompt" if header is None else f"the last one at character {header}"
    steps = [("1 assistant header", where)]
    words = [
        f"{word['word']} at {word['start']} ({'counts' if word['counts'] else 'does not count: the model wrote it'})"
        for word in traced["words"]
    ]
    steps.append(("2 control words", "; ".join(words) or "none stands alone"))
    steps.append(("3 empty think block", "yes" if traced["empty_block"] else "no"))
    winner = next((f"{word['word']} at {word['start']}" for word in traced["words"] if word["won"]), mode["from"])
    steps.append(("4 wins", winner))
    steps.append(("5 routing index", f"{mode['index']} ({mode['name']})"))
    steps.append(("6 expert", f"{mode['name']} MLP in layers {', '.join(map(str, traced['layers']))}, until the end"))
    print_pairs(console, "how the mode was decided", steps)


def _experts(chosen: Iterable[tuple[int, float]]) -> Text:
    text = Text()
    for expert, weight in chosen:
        # No-break spaces keep an expert and its weight on one line.
        text.append(f"{expert}\u00a0", style="bold" if weight >= 0.25 else "")
        text.append(f"{weight:.2f}".removeprefix("0"), style="dim").append("  ")
    return text


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _bar(share: float | None) -> Text:
    if share is None:
        return Text("–")
    return Text("█" * round(6 * share), style="blue").append(f" {share:.2f}", style="default")


def _table(title: str) -> RichTable:
    return RichTable(
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )


__all__: Sequence[str] = ["print_mode", "print_page", "print_pairs", "print_recurrence", "print_table", "print_trace"]
