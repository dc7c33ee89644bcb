"""Every kind of page in a real browser: quiet, offline, drawn, usable by keyboard, and deaf to what texts order."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from routelab.report.comparison import Shown, comparison_page
from routelab.report.html import page_of, render
from routelab.report.inputs import Run
from routelab.report.page import Page
from routelab.report.studies import STUDIES

ATTACK = '<script>window.pwned = 1</script><img src=x onerror="window.pwned = 1">$\\frac{1}$'
KINDS = ["training", "modes", "table1", "working-sets", "construction", "comparison", *sorted(STUDIES)]


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"report_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


BROWSER = module("browser")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = BROWSER.find_browser()
    if path is None:
        pytest.skip("no Chromium here: apt-get install chromium, or name one in ROUTELAB_CHROMIUM")
    with BROWSER.running(path, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(example: ModuleType) -> dict[str, Page]:
    """A page of every kind, each headed by an attack."""
    studies, construction = module("test_studies"), module("test_construction")
    manifest = example.example_manifest() | {"commit": ATTACK}
    found: dict[str, Run] = {}
    for kind, values in (
        ("training", example.example_results()),
        ("modes", example.modes_results()),
        ("table1", example.table1_results()),
        ("working-sets", example.working_sets_results()),
        ("construction", construction.certificate()),
    ):
        found[kind] = Run(Path(kind), kind, values | {"title": ATTACK, "note": ATTACK}, (), manifest)
    training = found["training"]
    attacked = json.loads(json.dumps(training.results).replace("aar-shuffled", json.dumps(ATTACK)[1:-1]))
    found["training"] = Run(training.folder, "training", attacked, example.example_metrics(), manifest)
    for name in STUDIES:
        found[name] = Run(Path(name), "study", studies.results(name, studies.FOUND[name]) | {"title": ATTACK}, (), {})
    drawn = {name: page_of(run) for name, run in found.items()}
    # A second run of the same host and task, so that something is side by side.
    again = Run(Path("again"), "training", training.results, (), manifest)
    several = [*((name, found[name]) for name in KINDS[:5]), ("again", again)]
    shown = [Shown(f"{name}{ATTACK}", run, drawn.get(name) or page_of(run)) for name, run in several]
    return {**drawn, "comparison": comparison_page(shown)}


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, browser: Any, pages: dict[str, Page], tmp_path_factory: Any) -> Any:
    """The browser with one page open, in the dark, and that page."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(pages[request.param]), encoding="utf-8")
    browser.open(path, dark=True)
    return browser, pages[request.param]


def test_pages_are_quiet_offline_drawn_and_legible(opened: Any) -> None:
    browser, page = opened
    assert browser.complaints() == []
    assert browser.requests() == []
    drawn = browser.evaluate(
        "[...document.querySelectorAll('figure')].map(f => [...f.querySelectorAll('svg')]"
        ".some(s => s.getBoundingClientRect().height > 40 && s.querySelector('path, image')))"
    )
    panels = [*page.panels, *(panel for part in page.parts.values() for panel in part.panels)]
    assert drawn == [True] * len(panels)
    # In the dark no text is dark: every colour of a drawing follows the page.
    dark = browser.evaluate(
        "[...document.querySelectorAll('svg text, p, td, th, h1, h2, code')].filter(e => {"
        " const style = getComputedStyle(e);"
        " const [r, g, b] = (e.closest('svg') ? style.fill : style.color).match(/[\\d.]+/g).map(Number);"
        " return .299 * r + .587 * g + .114 * b < 110; }).map(e => e.textContent)"
    )
    assert dark == []


def test_attacks_are_shown_and_not_run(opened: Any) -> None:
    browser, _ = opened
    assert browser.evaluate("window.pwned === undefined && document.images.length === 0")
    text = browser.evaluate("document.body.textContent")
    assert "<script>" in text or "window.pwned" not in text


def test_pages_fit_a_phone(opened: Any) -> None:
    browser, _ = opened
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    try:
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    finally:
        browser.call("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)


def show(browser: Any, page: Page, folder: Path) -> None:
    path = folder / "report.html"
    path.write_text(render(page), encoding="utf-8")
    browser.open(path)


def test_steps_are_taken_by_keyboard(browser: Any, pages: dict[str, Page], tmp_path: Path) -> None:
    show(browser, pages["working-sets"], tmp_path)
    where = "document.querySelector('.frame.shown p').textContent"
    assert browser.evaluate(where) == "step 2 of 4, where WISE freezes it"
    focused = "document.activeElement.matches('.steps input')"
    for _ in range(40):
        browser.press("Tab", 9)
        if browser.evaluate(focused):
            break
    assert browser.evaluate(focused)
    browser.press("ArrowRight", 39)
    assert browser.evaluate(where) == "step 3 of 4"
    browser.press("Tab", 9)
    browser.press("Enter", 13)
    browser.press("Enter", 13)
    assert browser.evaluate(where) == "step 4 of 4"
    assert browser.evaluate("document.querySelectorAll('.frame.shown').length") == 1


def test_long_tables_are_sorted_by_keyboard(browser: Any, pages: dict[str, Page], tmp_path: Path) -> None:
    show(browser, pages["margins"], tmp_path)
    heads = "[...document.querySelectorAll('table.many th button')]"
    assert browser.evaluate(f"{heads}.length") == 2
    browser.evaluate(f"{heads}[1].focus()")
    column = "[...document.querySelectorAll('table.many tbody tr')].map(row => row.cells[1].textContent)"
    before = browser.evaluate(column)
    browser.press("Enter", 13)
    values = [float(text.rstrip("%")) for text in browser.evaluate(column) if text != "–"]
    assert values == sorted(values)
    assert browser.evaluate(column)[-1] == "–"
    browser.press("Enter", 13)
    assert browser.evaluate("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
    assert sorted(browser.evaluate(column)) == sorted(before)


def test_tables_and_regions_are_reached_by_keyboard(browser: Any, pages: dict[str, Page], tmp_path: Path) -> None:
    show(browser, pages["training"], tmp_path)
    reached = set()
    for _ in range(12):
        browser.press("Tab", 9)
        reached.add(browser.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert {table.title for table in pages["training"].tables} <= reached


def test_print_shows_every_step(browser: Any, pages: dict[str, Page], tmp_path: Path) -> None:
    show(browser, pages["working-sets"], tmp_path)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        visible = "[...document.querySelectorAll('.frame')].filter(f => f.offsetHeight > 0).length"
        assert browser.evaluate(visible) == 4
        assert browser.evaluate("getComputedStyle(document.querySelector('.control')).display") == "none"
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
