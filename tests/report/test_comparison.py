"""One page of several runs: what is laid side by side, what never is, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from routelab.errors import RecipeError
from routelab.report.comparison import LARGEST, Shown, claim, comparison_page, report_runs, short_names
from routelab.report.comparison_figures import stem
from routelab.report.html import page_of
from routelab.report.inputs import read_run
from routelab.report.measures import Host, Measure, Task
from routelab.report.theme import Metric

Build = Callable[..., Path]


@pytest.fixture
def build(example: ModuleType, tmp_path: Path) -> Build:
    """Writes a run directory of the example, changed."""

    def built(name: str, change: Callable[[dict[str, Any]], None] = lambda results: None, **manifest: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        results = example.example_results()
        change(results)
        (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
        (folder / "manifest.json").write_text(json.dumps({**example.example_manifest(), **manifest}), encoding="utf-8")
        (folder / "metrics.jsonl").write_text("", encoding="utf-8")
        return folder

    return built


def other_host(results: dict[str, Any]) -> None:
    results["host"] = {**results["host"], "name": "somewhere/other"}


def test_runs_of_one_host_and_task_are_side_by_side(build: Build, tmp_path: Path) -> None:
    page, written = report_runs([build("a"), build("b")], tmp_path / "out")
    assert written[0] == tmp_path / "out" / "report.html"
    stems = [panel.stem for panel in page.panels]
    tasks = ("mini-moe-mini-arithmetic-accuracy-300", "mini-moe-mini-facts-accuracy-300")
    plain = [re.sub(r"-[0-9a-f]{6}-", "-", stem) for stem in stems]
    assert plain == [f"{task}-{what}" for task in tasks for what in ("scores", "differences")]
    assert {path.suffix for path in written[1:]} == {".png", ".svg", ".csv"}
    rows = list(csv.DictReader(io.StringIO(page.panels[0].data)))
    arms = ("aar", "aar-shuffled", "routing-only")
    assert {(row["run"], row["arm"]) for row in rows} == {(run, arm) for run in "ab" for arm in arms}
    table = next(table for table in page.tables if table.title.startswith("mini-arithmetic on mini-moe"))
    assert table.rows[0] == ["a", "aar", "3", "65.5% ± 1.5", "+3.2", "+0.6 to +5.8"]
    assert table.rows[2][:2] == ["a", "routing-only (control)"]
    assert list(page.parts) == ["a", "b"]
    assert ("a and b, paired example by example", f"routelab compare {tmp_path}/a {tmp_path}/b") in page.commands
    assert page.commands[-1][1] == f"routelab report {tmp_path}/a {tmp_path}/b"


def test_runs_of_other_hosts_weights_or_examples_are_never_side_by_side(build: Build) -> None:
    def fewer(results: dict[str, Any]) -> None:
        for task in results["tasks"]:
            task["examples"] = 60

    runs = [build("a"), build("b", other_host), build("c", fewer), build("d", host={"config.json": "00"})]
    read = [read_run(run) for run in runs]
    page = comparison_page([Shown(run.folder.name, run, page_of(run)) for run in read])
    assert not page.panels
    assert "No two of these share them." in page.note
    assert not [what for what, _ in page.commands if "paired" in what]
    assert page.eyebrow == ["4 runs", "3 hosts"]
    assert len(page.parts) == 4


def test_hosts_of_one_name_are_told_apart_by_their_weights(build: Build) -> None:
    runs = [read_run(build(name, host={"config.json": digest})) for name, digest in zip("abcd", "0011", strict=True)]
    page = comparison_page([Shown(run.folder.name, run, page_of(run)) for run in runs])
    titles = [table.title for table in page.tables if table.title.startswith("mini-arithmetic")]
    assert len(titles) == 2
    assert all("mini-moe (weights " in title for title in titles)


def test_kinds_differ_and_unfinished_runs_are_named(build: Build, tmp_path: Path) -> None:
    study = tmp_path / "acf"
    study.mkdir()
    curve = {"layer": 0, "window": 4, "tokens": 9, "lag": 2, "lag_uncentred": None}
    curve |= {"acf": [1.0, 0.5, 0.0, 0.0], "uncentred": [1.0] * 4, "weights": [0.25] * 4}
    found = {"threshold": 0.1, "texts": 2, "tokens": 30, "curves": [curve]}
    values = {"study": "acf", "kind": "study", "title": "acf", "host": None, "found": found, "commands": []}
    (study / "results.json").write_text(json.dumps(values), encoding="utf-8")
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    (waiting / "recipe.yaml").write_text("name: x\n", encoding="utf-8")
    page, written = report_runs([build("a"), study, waiting], tmp_path / "out")
    assert f"Not finished, so not here: {waiting}." in page.note
    assert [entry.about for entry in page.entries] == ["training · host mini-moe", "acf study"]
    assert "manifest.json is missing" in page.parts["acf"].note
    html = written[0].read_text(encoding="utf-8")
    assert html.index("On mini-arithmetic, aar reaches") < html.index("<svg") < html.index("made with")


def test_what_cannot_be_compared_is_named(build: Build, tmp_path: Path) -> None:
    first = build("a")
    newer = build("b", lambda results: results.update(schema=9))
    with pytest.raises(RecipeError, match=r"newer version \(schema 9"):
        report_runs([newer], tmp_path / "out")
    with pytest.raises(RecipeError, match=r"own report would be written over; choose another with --out"):
        report_runs([first, first], first)
    with pytest.raises(RecipeError, match="holds no results"):
        report_runs([first, tmp_path], tmp_path / "out")
    (first / "results.json").unlink()
    (first / "recipe.yaml").write_text("", encoding="utf-8")
    with pytest.raises(RecipeError, match="is finished; finish one with: routelab run --resume"):
        report_runs([first], tmp_path / "out")


def test_a_hundred_runs_are_one_page_in_ten_seconds(build: Build, tmp_path: Path) -> None:
    runs = [build(f"run-{number:03d}") for number in range(100)]
    import matplotlib.backends.backend_svg  # noqa: F401 (its import is not the page's time)

    began = time.process_time()
    page, written = report_runs(runs, tmp_path / "out")
    assert time.process_time() - began < 10
    assert written[0].stat().st_size < LARGEST
    assert page.claim == "All of 100 runs with a control show a difference from it."
    assert len(page.entries) == len(page.tables[0].rows) == 100
    assert not page.parts
    assert "each one's own drawings and tables are in its own report.html" in page.note
    assert len(list(csv.reader(io.StringIO(page.panels[0].data)))) == 1 + 300  # only what each run is about


def test_full_runs_are_left_out_until_the_page_is_small(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("routelab.report.comparison.LARGEST", 150_000)
    page, written = report_runs([build("a"), build("b"), build("c")], tmp_path / "out")
    assert written[0].stat().st_size < 150_000
    assert len(page.parts) < 3
    assert "is too large to be shown in full here: see its own report." in page.note


DAMAGE: list[Callable[[dict[str, Any]], Any]] = [
    lambda results: results.update(arms=None),
    lambda results: results.update(seeds=None),
    lambda results: results.update(commands=None),
    lambda results: results.update(schema=9),
    lambda results: results["comparisons"][0].update(difference="x"),
    lambda results: results["tasks"][0].update(examples=[]),
    lambda results: results["arms"]["aar"]["tasks"]["mini-facts"]["seeds"]["0"].update(value="x"),
]


@pytest.mark.parametrize("change", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_run_of_several_is_named_and_the_rest_is_shown(
    build: Build, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    runs = [build("a"), build("broken", change)]
    page, written = report_runs(runs, tmp_path / "out")
    assert [(entry.name, entry.about) for entry in page.entries][1:] == [("broken", "left out")]
    assert str(runs[1] / "results.json") in page.entries[1].claim
    assert str(runs[1] / "results.json") in written[0].read_text(encoding="utf-8")
    assert list(page.parts) == ["a"]
    with pytest.raises(RecipeError, match=re.escape(str(runs[1] / "results.json"))):
        report_runs(runs[1:], tmp_path / "out")


def test_a_run_given_twice_is_one(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build("a")
    (tmp_path / "link").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    page, _ = report_runs([Path("a"), run, run / ".." / "a", tmp_path / "link"], tmp_path / "out")
    assert page.eyebrow[0] == "1 run"
    again, _ = report_runs([run, build("b"), run], tmp_path / "out")
    assert [entry.name for entry in again.entries] == ["a", "b"]
    assert page.claim == "1 run with a control shows a difference from it."


@pytest.mark.parametrize("below", ["file", "file/page"])
def test_a_page_goes_into_a_folder(build: Build, tmp_path: Path, below: str) -> None:
    run = build("a")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"a page cannot be written to .*; choose another with --out"):
        report_runs([run], tmp_path / below)


def test_files_of_tasks_that_look_alike_are_two(build: Build, tmp_path: Path) -> None:
    metric = Metric("accuracy", 100.0, 1, "%", "points")
    names = ["a" * 300, "a" * 299 + "b", "mini-moe", "mini_moe"]
    stems = {stem(Task(Host(name), "t", metric, 3)) for name in names}
    assert len(stems) == 4
    assert max(map(len, stems)) < 100
    long = [build(name, lambda results: results.update(host={"name": "h" * 300})) for name in "ab"]
    _, written = report_runs(long, tmp_path / "out")
    assert all(path.is_file() for path in written)


def test_examples_are_the_same_by_their_hash_where_records_have_it(build: Build) -> None:
    runs = [build(name) for name in "abcd"]
    for run, digest in zip(runs, ("00", "00", "11", "11"), strict=True):
        for task in ("mini-arithmetic", "mini-facts"):
            path = run / "records" / "base" / f"{task}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"data_sha256": digest}), encoding="utf-8")
    read = [read_run(run) for run in runs]
    page = comparison_page([Shown(run.folder.name, run, page_of(run)) for run in read])
    table = next(table for table in page.tables if table.title.startswith("mini-arithmetic on mini-moe"))
    assert {row[0] for row in table.rows} == {"a", "b"}
    assert table.title == "mini-arithmetic on mini-moe, 300 examples, data 00"
    assert "host, task and examples are the same, these by their hash." in page.note
    path.write_text("{", encoding="utf-8")
    with pytest.raises(RecipeError, match=re.escape(f"{path} is damaged or cut off")):
        read_run(runs[3])


def test_without_a_hash_the_page_says_as_many_examples(build: Build, tmp_path: Path) -> None:
    page, _ = report_runs([build("a"), build("b")], tmp_path / "out")
    assert "only where host and task are the same and the examples as many" in page.note
    assert "of twenty about one misses the true difference by chance" in page.note


def test_a_run_without_hashes_of_its_host_says_why_it_stands_alone(build: Build, tmp_path: Path) -> None:
    runs = [build("a", host={"config.json": "00"}), build("b")]
    (runs[1] / "manifest.json").unlink()
    page, _ = report_runs(runs, tmp_path / "out")
    assert "No hashes of the host's weights are in manifest.json of b, or it is missing" in page.note


def test_a_host_in_a_folder_of_a_general_name_is_called_by_two(build: Build) -> None:
    run = read_run(build("a", lambda results: results["host"].update(name="somewhere/mini/host")))
    page = comparison_page([Shown("a", run, page_of(run))])
    assert page.entries[0].about == "training · host mini/host"


def test_claims_count_verdicts(build: Build, tmp_path: Path) -> None:
    def undecided(results: dict[str, Any]) -> None:
        results["comparisons"][0]["verdict"] = "undecided"

    assert comparison_page([]).claim == claim([]) == "0 runs, none of which compares with a control."
    runs = [build("a", undecided), build("b", undecided), build("c")]
    assert report_runs(runs[:1], tmp_path / "out")[0].claim == "1 run with a control shows no difference from it."
    assert report_runs(runs, tmp_path / "out")[0].claim == "1 of 3 runs with a control shows a difference from it."


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    assert list(short_names([tmp_path / "a", tmp_path / "b"]).values()) == ["a", "b"]
    assert list(short_names([tmp_path / "x" / "a", tmp_path / "y" / "a"]).values()) == ["x/a", "y/a"]
    assert list(short_names([Path("/a"), Path("/x/a")]).values()) == ["a", "x/a"]


def test_wilson_interval() -> None:
    task = Task(Host("h"), "t", Metric("accuracy", 100.0, 1, "%", "points"), 100)
    low, high = Measure(task, "a", [0.4, 0.6], main=True, control=False).interval or (0.0, 0.0)
    assert (round(low, 4), round(high, 4)) == (0.4038, 0.5962)  # scipy.stats.binomtest(50, 100), Wilson
    loss = Task(Host("h"), "t", Metric("loss", 1.0, 4, "", "nats per token"), 100)
    assert Measure(loss, "a", [0.5], main=True, control=False).interval is None
