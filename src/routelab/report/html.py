"""``report.html``: one file, nothing fetched, light and dark, for a phone and for paper."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from routelab.report.figures import Panel, panels
from routelab.report.inputs import read_run
from routelab.report.tables import claim, headline_comparison, reading, tables, verdict
from routelab.report.theme import VARIABLES, arm_colours, metric_of


def write_report(
    path: Path,
    figures: Path,
    results: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
) -> list[Path]:
    """Write ``report.html`` to ``path`` and its figures, as PNG and SVG, to ``figures``; return what was written."""
    drawn = panels(results, metrics)
    written = [file for panel in drawn for file in panel.write(figures)]
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(render(results, drawn, manifest), encoding="utf-8")
    os.replace(temporary, path)
    return [path, *written]


def render(results: Mapping[str, Any], drawn: Sequence[Panel], manifest: Mapping[str, Any]) -> str:
    """Return the page. Every text is escaped; only the drawings are inserted as they are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files("routelab.report").joinpath("page.html").read_text("utf-8"))
    comparison = headline_comparison(results)
    task = next(task for task in results["tasks"] if task["task"] == results["headline"]["task"])
    colours = arm_colours(list(results["arms"]), results["control"])
    sessions = manifest.get("sessions", [])
    return template.render(
        results=results,
        claim=claim(results),
        headline=results["headline"],
        headline_metric=metric_of(task),
        comparison=comparison,
        verdict=verdict(comparison) if comparison else "",
        reading=reading(results, comparison) if comparison else "",
        panels=drawn,
        tables=tables(results),
        commands=results["commands"],
        facts=facts(manifest),
        colours={arm: f"var(--{VARIABLES[colour][0]})" for arm, colour in colours.items()},
        variables=VARIABLES,
        started=sessions[0]["started"][:10] if sessions else "",
    )


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


def _session(session: Mapping[str, Any]) -> str:
    seconds = session.get("seconds")
    return f"{session['started']}, " + ("not ended" if seconds is None else f"{seconds:.0f} s")


def report_run(folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """Draw the figures and write the page of a run directory; return its results and the files written, page first.

    Raises ``RecipeError`` when the folder holds no finished run, or a file of it is damaged.
    """
    results, metrics, manifest = read_run(folder)
    return results, write_report(folder / "report.html", folder / "figures", results, metrics, manifest)
