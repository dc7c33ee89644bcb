"""``report.html``: one file, nothing fetched, light and dark, for a phone and for paper."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path

from routelab.errors import RecipeError
from routelab.report.construction import construction_page
from routelab.report.inputs import CONSTRUCTION, Run, read_run, reading
from routelab.report.modes import modes_page
from routelab.report.page import Page
from routelab.report.panel import Panel
from routelab.report.studies import study_page
from routelab.report.table1 import table1_page
from routelab.report.theme import VARIABLES
from routelab.report.training import training_page
from routelab.report.working_sets import working_sets_page


def write_report(path: Path, figures: Path, page: Page) -> list[Path]:
    """Write ``report.html`` to ``path`` and its figures, as PNG, SVG and CSV, to ``figures``; return what was
    written. Raises ``RecipeError`` where that cannot be written."""
    panels, text = page.panels, render(page)
    with writing(path.parent):
        written = [file for panel in panels for file in panel.write(figures)]
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    return [path, *written]


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Write into a folder; raises ``RecipeError`` where it is none, or does not take it."""
    try:
        yield
    except OSError as error:
        raise RecipeError(f"a page cannot be written to {folder} ({error}); choose another with --out") from error


def render(page: Page) -> str:
    """Return the page as HTML. Every text is escaped; only the drawings are inserted as they are.

    The page forbids itself the network and every script but its own, which is named by its hash.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("routelab.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = resources.files("routelab.report").joinpath("templates", "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(page=page, variables=VARIABLES, script=script, digest=digest)


def page_of(run: Run) -> Page:
    """Return the page of a run that was read.

    Raises ``RecipeError`` where its results are damaged further inside; so do the page's drawings, which are made
    later.
    """

    def draw() -> Sequence[Panel]:
        with reading(run.source):
            return page.draw()

    with reading(run.source):
        page = _page(run)
        commands = [(str(what), str(command)) for what, command in page.commands]
    lost = " and ".join(run.missing)
    note = f"{page.note} {lost} is missing, and what comes from it.".strip() if lost else page.note
    return replace(page, note=note, commands=commands, draw=draw)


def report_run(folder: Path) -> tuple[Page, list[Path]]:
    """Draw the figures and write the page of a run directory; return the page and the files written, its own first.

    Raises ``RecipeError`` when the folder holds no finished run, or a file of it is damaged.
    """
    run = read_run(folder)
    page = page_of(run)
    with reading(run.source):
        return page, write_report(folder / "report.html", folder / "figures", page)


def _page(run: Run) -> Page:
    match run.kind:
        case "table1":
            return table1_page(run.results, run.manifest)
        case "modes":
            return modes_page(run.results, run.manifest)
        case "working-sets":
            return working_sets_page(run.results, run.manifest)
        case "study":
            return study_page(run.results, run.manifest)
        case kind if kind == CONSTRUCTION:
            return construction_page(run.results, run.folder)
        case _:
            return training_page(run.results, run.metrics, run.manifest)
