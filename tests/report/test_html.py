"""The page is one file that fetches nothing, escapes every text, and says the result first."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from routelab.report.html import render, write_report
from routelab.report.training import training_page


class Page(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data: str) -> None:
        self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if word)


@pytest.fixture(scope="module")
def written(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    page = training_page(example.example_results(), example.example_metrics(), example.example_manifest())
    write_report(folder / "report.html", folder / "figures", page)
    return folder


def test_page_is_self_contained(written: Path) -> None:
    page = Page((written / "report.html").read_text(encoding="utf-8"))
    assert not {"link", "iframe", "img"} & set(page.tags)
    assert page.tags.count("script") == 1
    assert all(link.startswith("#") for link in page.links), page.links
    source = (written / "report.html").read_text(encoding="utf-8")
    assert "@import" not in source
    assert "url(http" not in source


def test_claim_and_verdict_come_before_figures_and_tables(written: Path) -> None:
    text = Page((written / "report.html").read_text(encoding="utf-8")).text
    order = [
        "On mini-arithmetic, aar reaches 65.5% accuracy; routing-only reaches 62.3%.",
        "+3.2 points 95% interval +0.6 to +5.8 better than routing-only",
        "Accuracy on mini-arithmetic. A dot is a seed",
        "Difference from routing-only",
        "How to get these numbers again",
        "routelab run mini/aar --out runs/mini-aar",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_figures_are_written_and_drawings_follow_the_page(written: Path) -> None:
    names = {path.name for path in (written / "figures").iterdir()}
    assert names == {
        f"{stem}.{kind}" for stem in ("scores", "differences", "loss", "agreement") for kind in ("png", "svg", "csv")
    }
    source = (written / "report.html").read_text(encoding="utf-8")
    assert source.count("<svg") == 4
    assert "var(--arm-1)" in source
    assert "prefers-color-scheme: dark" in source
    assert "var(--" not in (written / "figures" / "scores.svg").read_text(encoding="utf-8")


def test_every_text_is_escaped(example: ModuleType) -> None:
    results = example.example_results()
    attack = '<script>alert("x")</script>'
    results["title"] = results["note"] = attack
    results["arms"][attack] = results["arms"].pop("aar-shuffled")
    results["comparisons"] = [row for row in results["comparisons"] if row["arm"] == "aar"]
    results["commands"] = [[attack, attack]]
    manifest = {**example.example_manifest(), "commit": attack}
    text = render(training_page(results, [], manifest))
    assert attack not in text
    assert text.count("<script") == 1


def test_drawings_escape_names_too(example: ModuleType, tmp_path: Path) -> None:
    results = example.example_results()
    results["arms"]["<b>bold"] = results["arms"].pop("aar-shuffled")
    results["comparisons"] = [row for row in results["comparisons"] if row["arm"] == "aar"]
    page = training_page(results, [], example.example_manifest())
    write_report(tmp_path / "report.html", tmp_path / "figures", page)
    assert "<b>" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_run_with_its_control_only_has_no_verdict(example: ModuleType) -> None:
    results = example.example_results()
    results["arms"] = {"routing-only": results["arms"]["routing-only"]}
    results["comparisons"] = []
    results["headline"] = {"arm": "routing-only", "task": "mini-arithmetic"}
    text = Page(render(training_page(results, [], example.example_manifest()))).text
    assert "routing-only reaches 62.3% accuracy on mini-arithmetic." in text
    assert "95% interval" not in text


def test_report_never_imports_torch() -> None:
    code = "import sys, routelab.report.html, routelab.report.terminal; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
