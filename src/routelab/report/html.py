"""``report.html``: one file, nothing fetched, light and dark, for a phone and for paper."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from routelab.report.inputs import read_run
from routelab.report.modes import modes_page
from routelab.report.page import Page
from routelab.report.studies import study_page
from routelab.report.table1 import table1_page
from routelab.report.theme import VARIABLES
from routelab.report.training import training_page
from routelab.report.working_sets import working_sets_page


def write_report(path: Path, figures: Path, page: Page) -> list[Path]:
    """Write ``report.html`` to ``path`` and its figures, as PNG and SVG, to ``figures``; return what was written."""
    written = [file for panel in page.panels for file in panel.write(figures)]
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(render(page), encoding="utf-8")
    os.replace(temporary, path)
    return [path, *written]


def render(page: Page) -> str:
    """Return the page as HTML. Every text is escaped; only the drawings are inserted as they are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files("routelab.report").joinpath("page.html").read_text("utf-8"))
    return template.render(page=page, variables=VARIABLES)


def report_run(folder: Path) -> tuple[Page, list[Path]]:
    """Draw the figures and write the page of a run directory; return the page and the files written, its own first.

    Raises ``RecipeError`` when the folder holds no finished run, or a file of it is damaged.
    """
    results, metrics, manifest = read_run(folder)
    match results.get("kind", "training"):
        case "table1":
            page = table1_page(results, manifest)
        case "modes":
            page = modes_page(results, manifest)
        case "working-sets":
            page = working_sets_page(results, manifest)
        case "study":
            page = study_page(results, manifest)
        case _:
            page = training_page(results, metrics, manifest)
    return page, write_report(folder / "report.html", folder / "figures", page)
