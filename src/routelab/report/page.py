"""What a page of results says, whatever kind of run it is of: the claim first, then figures, tables and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from routelab.report.figures import Panel
from routelab.report.tables import Table


@dataclass(frozen=True)
class Verdict:
    """The headline number with its interval, in words: ``+3.2 points``, ``95% interval +0.6 to +5.8``, ``better``."""

    number: str
    interval: str
    word: str
    colour: str
    reading: str


@dataclass(frozen=True)
class Page:
    """One page. ``colours`` are the CSS colours of row names; ``facts`` and ``commands`` are pairs of text."""

    title: str
    eyebrow: Sequence[str]
    claim: str
    note: str
    panels: Sequence[Panel]
    tables: Sequence[Table]
    commands: Sequence[Sequence[str]]
    facts: Sequence[tuple[str, str]]
    verdict: Verdict | None = None
    colours: Mapping[str, str] = field(default_factory=dict)


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
    found.append(("seeds", ", ".join(map(str, manifest.get("seeds", [])))))
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
