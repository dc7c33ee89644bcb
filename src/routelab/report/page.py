"""What a page of results says, whatever kind of run it is of: the claim first, then figures, tables and commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from routelab.report.panel import Panel
from routelab.report.tables import Table


@dataclass(frozen=True)
class Verdict:
    """The headline number with its interval, in words: ``+3.2 points``, ``95% interval +0.6 to +5.8``, ``better``.

    ``clear`` says whether the interval leaves out zero.
    """

    number: str
    interval: str
    word: str
    colour: str
    reading: str
    clear: bool


@dataclass(frozen=True)
class Entry:
    """Something with a page of its own, such as one run on a page of several: what it is called, what it is, what it
    says, its verdict if it has one, and a relative link to its page if that lies below this one."""

    name: str
    about: str
    claim: str
    verdict: Verdict | None = None
    link: str = ""


@dataclass(frozen=True)
class Page:
    """One page. ``draw`` makes the drawings, which takes time: they are made when they are first asked for.

    ``colours`` are the CSS colours of row names; ``facts`` and ``commands`` are pairs of text. A page of several runs
    has an entry for each, and in ``parts`` the pages of single ones by name; that of a run one for each of its studies.
    """

    title: str
    eyebrow: Sequence[str]
    claim: str
    note: str
    draw: Callable[[], Sequence[Panel]]
    tables: Sequence[Table]
    commands: Sequence[Sequence[str]]
    facts: Sequence[tuple[str, str]]
    verdict: Verdict | None = None
    colours: Mapping[str, str] = field(default_factory=dict)
    entries: Sequence[Entry] = ()
    parts: Mapping[str, Page] = field(default_factory=dict)

    @cached_property
    def panels(self) -> Sequence[Panel]:
        """The drawings."""
        return self.draw()


def facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the manifest's facts as label and text."""
    hardware = manifest.get("hardware", {})
    sessions = manifest.get("sessions", [])
    found: list[tuple[str, str]] = []
    if sessions:
        found.append(("command", sessions[-1]["command"]))
        found.append(("sessions", "; ".join(_session(session) for session in sessions)))
    found.append(("commit", str(manifest.get("commit") or "not in a repository")))
    if hardware:
        memory = hardware.get("memory_bytes")
        parts = [hardware["processor"], f"{hardware['cores']} cores", f"{hardware['threads']} threads"]
        parts += [f"{memory / 2**30:.0f} GiB memory"] if memory else []
        parts += [hardware["accelerator"]] if hardware.get("accelerator") else []
        found.append(("hardware", ", ".join(parts)))
    if manifest.get("seeds"):
        found.append(("seeds", ", ".join(map(str, manifest["seeds"]))))
    found.append(("versions", ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())))
    for name, entry in manifest.get("data", {}).items():
        found.append((f"data {name}", f"{entry['rows']:,} rows, SHA-256 {entry['sha256']}"))
    for name, digest in manifest.get("host", {}).items():
        found.append((f"host {name}", f"SHA-256 {digest}"))
    return found


def started(manifest: Mapping[str, Any]) -> list[str]:
    """Return the day on which the run began, in a list that is empty where the manifest does not say."""
    return [session["started"][:10] for session in manifest.get("sessions", [])[:1]]


def _session(session: Mapping[str, Any]) -> str:
    seconds = session.get("seconds")
    return f"{session['started']}, " + ("not ended" if seconds is None else f"{seconds:.0f} s")
