"""One page of several runs: what each says, what they share side by side, and how to get every number again."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from routelab.errors import RecipeError
from routelab.report.comparison_figures import task_panels, task_table
from routelab.report.html import page_of, render, write_report, writing
from routelab.report.inputs import Run, read_run, reading, source_of, unfinished
from routelab.report.measures import Host, Measure, Task, by_task, host_of, measures_of
from routelab.report.page import Entry, Page
from routelab.report.tables import Table

_T = TypeVar("_T")
Shared = Mapping[Task, Mapping[str, Sequence[Measure]]]
#: Runs that are shown in full; of more the page has what they share, and their own pages have the rest.
FULL = 12
#: Tasks are drawn, those of most runs first, until the drawings have this many runs.
_DRAWN = 250
#: Packages whose versions are shown.
_NAMED = ("routelab", "torch", "transformers")
#: Bytes that a page may have. Full runs are left out, largest first, until it does.
LARGEST = 6_000_000


@dataclass(frozen=True)
class Shown:
    """A run on the page: its name there, what was read, its own page."""

    name: str
    run: Run
    page: Page

    @cached_property
    def measures(self) -> list[Measure]:
        """What it can be laid beside other runs in."""
        return measures_of(self.run)


def report_runs(folders: Sequence[Path], out: Path) -> tuple[Page, list[Path]]:
    """Write one page of several runs to ``out/report.html``, its drawings to ``out/figures``; return the page and the
    files written, its own first.

    A run that is damaged or of a newer version is named there, with what is wrong, and left out.

    Raises ``RecipeError`` for a folder that is no run, where no run is finished or all are damaged, and where ``out``
    is a run directory, whose own page would be lost, or cannot be written to.
    """
    if any((out / name).exists() for name in ("recipe.yaml", "results.json", "certificate.json")):
        raise RecipeError(f"{out} holds a run, whose own report would be written over; choose another with --out")
    once: dict[Path, Path] = {}
    for folder in folders:
        once.setdefault(folder.resolve(), folder)
    given = list(once.values())
    waiting = [folder for folder in given if unfinished(folder)]
    finished = [source_of(folder).parent for folder in given if folder not in waiting]
    if not finished:
        raise RecipeError(f"none of {', '.join(map(str, given))} is finished; finish one with: routelab run --resume")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    shown, damaged = _sound([(name, folder) for folder, name in short_names(finished).items()])
    if not shown:
        raise RecipeError("; ".join(entry.claim for entry in damaged))
    page = _fitting(comparison_page(shown, waiting, damaged))
    return page, write_report(out / "report.html", out / "figures", page)


def comparison_page(shown: Sequence[Shown], waiting: Sequence[Path] = (), damaged: Sequence[Entry] = ()) -> Page:
    """Return the page of several runs; ``waiting`` are run directories without results, ``damaged`` says what is wrong
    with those that are left out."""
    full = len(shown) <= FULL
    tasks = by_task({each.name: each.measures for each in shown})
    shared = {task: found for task, found in tasks.items() if len(found) > 1 or not full}
    called, drawn = _task_names(shared), _first_tasks(shared)
    hosts = {host for each in shown if (host := host_of(each.run)) is not None}
    many = f"{len(shown)} run{'s' if len(shown) != 1 else ''}"
    return Page(
        title="Runs side by side",
        eyebrow=[many, f"{len(hosts)} host{'s' if len(hosts) != 1 else ''}"],
        claim=claim(shown),
        note=_note(shown, tasks, drawn, shared, waiting),
        draw=lambda: [panel for task in drawn for panel in task_panels(task, called[task], shared[task])],
        tables=[
            _overview(shown),
            *(task_table(task, called[task], found) for task, found in shared.items()),
            _made_with(shown),
        ],
        commands=_commands(shown, shared, full=full),
        facts=[],
        entries=[*(Entry(each.name, _about(each), each.page.claim, each.page.verdict) for each in shown), *damaged],
        parts={each.name: each.page for each in shown} if full else {},
    )


def claim(shown: Sequence[Shown]) -> str:
    """Say in how many runs the interval of the verdict leaves out zero."""
    verdicts = [each.page.verdict for each in shown if each.page.verdict is not None]
    if not verdicts:
        many = "1 run, which compares" if len(shown) == 1 else f"{len(shown)} runs, none of which compares"
        return f"{many} with {'no' if len(shown) == 1 else 'a'} control."
    clear = sum(verdict.clear for verdict in verdicts)
    if len(verdicts) == 1:
        return f"1 run with a control shows {'a' if clear else 'no'} difference from it."
    counted = {0: "None", len(verdicts): "All"}.get(clear, str(clear))
    return f"{counted} of {len(verdicts)} runs with a control show{'s' * (clear < 2)} a difference from it."


def short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return for every folder as much of the end of its path as tells it from the others: at most all of it."""
    paths = {folder: folder.resolve() for folder in folders}
    for depth in range(1, max(len(path.parts) for path in paths.values())):
        names = {folder: "/".join(path.parts[1:][-depth:]) for folder, path in paths.items()}
        if all(names.values()) and len(set(names.values())) == len(names):
            return names
    return {folder: str(path) for folder, path in paths.items()}


def _sound(folders: Sequence[tuple[str, Path]]) -> tuple[list[Shown], list[Entry]]:
    """Read runs and use all that the page will use of each alone; return the sound ones, and what is wrong with the
    others."""
    damaged: list[Entry] = []

    def kept(items: Sequence[tuple[str, _T]], use: Callable[[str, _T], Shown]) -> list[tuple[str, Shown]]:
        found = []
        for name, item in items:
            try:
                found.append((name, use(name, item)))
            except RecipeError as error:
                damaged.append(Entry(name, "left out", str(error)))
        return found

    read = kept(folders, _read_alone)
    if len(read) <= FULL:
        read = kept(read, lambda _, each: _drawn_alone(each))
    return [each for _, each in read], damaged


def _read_alone(name: str, folder: Path) -> Shown:
    run = read_run(folder)
    shown = Shown(name, run, page_of(run))
    with reading(run.source):
        for each in shown.measures:
            hash(each.task), each.mean, each.interval
        comparison_page([shown])
    return shown


def _drawn_alone(shown: Shown) -> Shown:
    with reading(shown.run.source):
        for panel in shown.page.panels:
            panel.svg()
    return shown


def _fitting(page: Page) -> Page:
    """Leave out full runs, largest first, until the page is small enough."""
    sizes = {name: sum(len(panel.svg()) for panel in part.panels) for name, part in page.parts.items()}
    while page.parts and len(render(page).encode()) > LARGEST:
        largest = max(page.parts, key=lambda name: sizes[name])
        note = f"{page.note} {largest} is too large to be shown in full here: see its own report.".strip()
        page = replace(page, note=note, parts={name: part for name, part in page.parts.items() if name != largest})
    return page


def _first_tasks(shared: Shared) -> list[Task]:
    """Return the tasks that are drawn, at least one."""
    counts = accumulate(map(len, shared.values()))
    return [task for task, count in zip(shared, counts, strict=True) if count <= _DRAWN] or list(shared)[:1]


def _task_names(tasks: Mapping[Task, object]) -> dict[Task, str]:
    """Name tasks with their host, with its weights where two hosts share a name, and with their data where two tasks
    would."""
    hosts = {task.host for task in tasks}
    called = {
        task: f"{task.name} on {_host_name(task.host, hosts)}"
        + (f", {task.examples} examples" if task.examples else "")
        + ("" if task.metric.label == "accuracy" else f", {task.metric.label}")
        for task in tasks
    }
    counts = Counter(called.values())
    return {
        task: f"{name}, data {task.data[:8]}" if task.data and counts[name] > 1 else name
        for task, name in called.items()
    }


def _host_name(host: Host, hosts: set[Host]) -> str:
    alone = sum(each.name == host.name for each in hosts) == 1
    return host.name if alone or not host.digest else f"{host.name} (weights {host.digest})"


def _note(
    shown: Sequence[Shown], tasks: Mapping[Task, object], drawn: Sequence[Task], shared: Shared, waiting: Sequence[Path]
) -> str:
    same = "host, task and examples are the same" + (", these by their hash" if tasks else "")
    if any(task.data is None for task in tasks):
        same = "host and task are the same and the examples as many; where runs know a hash of these, it is the same"
    said = [f"Runs are laid side by side only where {same}."]
    if not shared:
        said.append("No two of these share them.")
    said += _without_weights(shown)
    if sum(each.page.verdict is not None for each in shown) > 1:
        said.append("Every interval is a 95% one of its own: of twenty about one misses the true difference by chance.")
    if len(shown) > FULL:
        said.append(f"More than {FULL} runs: each one's own drawings and tables are in its own report.html.")
    if len(drawn) < len(shared):
        said.append(f"The {len(drawn)} tasks of most runs are drawn, of {len(shared)}.")
    if waiting:
        said.append(f"Not finished, so not here: {', '.join(map(str, waiting))}.")
    return " ".join(said)


def _without_weights(shown: Sequence[Shown]) -> list[str]:
    """Say why a run whose manifest has no hashes of its host stands apart from those that have them."""
    hosts = {each.name: host for each in shown if (host := host_of(each.run)) is not None}
    known = {host.name for host in hosts.values() if host.digest}
    apart = [name for name, host in hosts.items() if not host.digest and host.name in known]
    if not apart:
        return []
    return [
        f"No hashes of the host's weights are in manifest.json of {', '.join(apart)}, or it is missing: "
        "so they stand beside no run that has them."
    ]


def _about(each: Shown) -> str:
    host = host_of(each.run)
    kind = each.run.results["study"] + " study" if each.run.kind == "study" else each.run.kind.replace("-", " ")
    return f"{kind} · host {host.name}" if host is not None else kind


def _overview(shown: Sequence[Shown]) -> Table:
    rows = []
    for each in shown:
        verdict, host = each.page.verdict, host_of(each.run)
        said = ["–"] * 3 if verdict is None else [verdict.number, verdict.interval, verdict.word]
        seeds = str(len(each.run.results.get("seeds", ())) or "–")
        rows.append([each.name, host.name if host is not None else "–", *said, seeds])
    columns = ["run", "host", "difference", "95% interval", "verdict", "seeds"]
    return Table("runs", columns, rows, text=frozenset({"run", "host", "verdict"}))


def _made_with(shown: Sequence[Shown]) -> Table:
    rows = []
    for each in shown:
        manifest = each.run.manifest
        sessions, hardware = manifest.get("sessions", []), manifest.get("hardware", {})
        versions = manifest.get("versions", {})
        rows.append(
            [
                each.name,
                sessions[0]["started"][:10] if sessions else "–",
                f"{sum(one.get('seconds') or 0 for one in sessions):,.0f}" if sessions else "–",
                str(manifest.get("commit") or "–")[:10],
                ", ".join(f"{name} {versions[name]}" for name in _NAMED if name in versions) or "–",
                f"{hardware['processor']}, {hardware['threads']} threads" if hardware else "–",
            ]
        )
    columns = ["run", "day", "seconds", "commit", "versions", "hardware"]
    return Table("made with", columns, rows, text=frozenset({"run", "day", "commit", "versions", "hardware"}))


def _commands(shown: Sequence[Shown], shared: Shared, *, full: bool) -> list[tuple[str, str]]:
    """Return how to get everything again: with few runs every command of each, with many the one that made it."""
    found = [
        (f"{each.name}: {what}", command)
        for each in shown
        for what, command in (each.page.commands if full else each.page.commands[:1])
    ]
    trained = {each.name: each.run.folder for each in shown if each.run.kind == "training"}
    pairs = [[name for name in runs if name in trained] for runs in shared.values()] if full else []
    for first, *others in dict.fromkeys(map(tuple, filter(None, pairs))):
        for other in others:
            line = shlex.join(["routelab", "compare", str(trained[first]), str(trained[other])])
            found.append((f"{first} and {other}, paired example by example", line))
    page = shlex.join(["routelab", "report", *(str(each.run.folder) for each in shown)])
    return [*found, ("This page", page)]
