"""One page of several runs: what each says, what they share side by side, and how to get every number again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from routelab.errors import RecipeError
from routelab.report.comparison_figures import task_panels, task_table
from routelab.report.html import page_of, render, write_report
from routelab.report.inputs import Run, read_run, unfinished
from routelab.report.measures import Host, Measure, Task, by_task, host_of, measures_of
from routelab.report.page import Entry, Page
from routelab.report.tables import Table

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

    Raises ``RecipeError`` for a folder that is no run, or is damaged or of a newer version, where no run is finished,
    and where ``out`` is a run directory, whose own page would be lost.
    """
    if any((out / name).exists() for name in ("recipe.yaml", "results.json", "certificate.json")):
        raise RecipeError(f"{out} holds a run, whose own report would be written over; choose another with --out")
    waiting = [folder for folder in folders if unfinished(folder)]
    read = [read_run(folder) for folder in dict.fromkeys(folders) if folder not in waiting]
    if not read:
        raise RecipeError(f"none of {', '.join(map(str, folders))} is finished; finish one with: routelab run --resume")
    names = short_names([run.folder for run in read])
    shown = [Shown(names[run.folder], run, page_of(run)) for run in read]
    out.mkdir(parents=True, exist_ok=True)
    page = _fitting(comparison_page(shown, waiting))
    return page, write_report(out / "report.html", out / "figures", page)


def comparison_page(shown: Sequence[Shown], waiting: Sequence[Path] = ()) -> Page:
    """Return the page of several runs; ``waiting`` are run directories without results."""
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
        note=_note(full, len(drawn), len(shared), waiting),
        draw=lambda: [panel for task in drawn for panel in task_panels(task, called[task], shared[task])],
        tables=[
            _overview(shown),
            *(task_table(task, called[task], found) for task, found in shared.items()),
            _made_with(shown),
        ],
        commands=_commands(shown, shared, full=full),
        facts=[],
        entries=[Entry(each.name, _about(each), each.page.claim, each.page.verdict) for each in shown],
        parts={each.name: each.page for each in shown} if full else {},
    )


def claim(shown: Sequence[Shown]) -> str:
    """Say in how many runs the interval of the verdict leaves out zero."""
    verdicts = [each.page.verdict for each in shown if each.page.verdict is not None]
    if not verdicts:
        return f"{len(shown)} runs, none of which compares with a control."
    clear = sum(verdict.clear for verdict in verdicts)
    counted = {0: "None", len(verdicts): "All"}.get(clear, str(clear))
    runs = f"{len(verdicts)} run{'s' * (len(verdicts) > 1)} with a control"
    return f"{counted} of {runs} show{'s' * (clear < 2)} a difference from it."


def short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Return for every folder as much of the end of its path as tells it from the others."""
    parts = {folder: folder.resolve().parts for folder in folders}
    for depth in range(1, max(map(len, parts.values())) + 1):
        names = {folder: "/".join(own[-depth:]) for folder, own in parts.items()}
        if len(set(names.values())) == len(names):
            break
    return names


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
    """Name tasks with their host, and with its weights where two hosts share a name."""
    hosts = {task.host for task in tasks}
    return {
        task: f"{task.name} on {_host_name(task.host, hosts)}"
        + (f", {task.examples} examples" if task.examples else "")
        + ("" if task.metric.label == "accuracy" else f", {task.metric.label}")
        for task in tasks
    }


def _host_name(host: Host, hosts: set[Host]) -> str:
    alone = sum(each.name == host.name for each in hosts) == 1
    return host.name if alone or not host.digest else f"{host.name} (weights {host.digest})"


def _note(full: bool, drawn: int, shared: int, waiting: Sequence[Path]) -> str:
    said = ["Runs are laid side by side only where host, task and examples are the same."]
    if not shared:
        said.append("No two of these share them.")
    if not full:
        said.append(f"More than {FULL} runs: each one's own drawings and tables are in its own report.html.")
    if drawn < shared:
        said.append(f"The {drawn} tasks of most runs are drawn, of {shared}.")
    if waiting:
        said.append(f"Not finished, so not here: {', '.join(map(str, waiting))}.")
    return " ".join(said)


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
