"""What a run does after its own evaluations: studies and the harness, once each, found again on its page."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from routelab import processes
from routelab.afterwards import check_afterwards, planned
from routelab.cli.runs import _studies_of
from routelab.errors import EvaluationError
from routelab.recipe import HarnessSpec, Recipe, load_recipe, parse_recipe
from routelab.report.html import report_run
from routelab.results import collect
from routelab.run import run_recipe
from routelab.rundir import RunDirectory, read_json

STUDIES = ("acf", "sinks", "routing", "gates")


@pytest.fixture(scope="module")
def recipe(host: Path) -> Recipe:
    short = {"limit": 2, "longest": 40}
    found = parse_recipe(
        {
            "name": "tiny",
            "host": {"name": str(host), "dtype": "float32"},
            "arms": {"aar": [{"method": "aar", "layers": [1], "window": 4}], "control": [{"method": "routing_only"}]},
            "control": "control",
            "seeds": [3],
            "data": [{"source": "mini-arithmetic", "limit": 4}],
            "train": {"steps": 1, "batch_size": 2, "max_length": 128, "learning_rate": 1e-2},
            "evaluate": [{"task": "mini-facts", "limit": 3}],
            "studies": [
                {"study": "acf", "window": [8], **short},
                {"study": "sinks", "patch": True, **short},
                {"study": "routing", "tasks": ["mini-facts", "mini-paragraphs"], **short},
                {"study": "gates", **short},
            ],
        },
        "here",
    )
    assert isinstance(found, Recipe)
    return found


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    run_recipe(recipe, RunDirectory.open(folder, recipe, resume=False), command="routelab run tiny.yaml")
    return folder


def test_every_study_is_an_ordinary_study_directory(finished: Path) -> None:
    for name in STUDIES:
        folder = finished / "studies" / name
        results = read_json(folder / "results.json")
        assert (results["kind"], results["study"], results["seeds"]) == ("study", name, [3])
        assert f"--routing {finished / 'routing/aar/seed-3'}" in results["commands"][0][1]
        assert list((folder / "figures").glob("*.png"))
    report_run(finished / "studies/gates")
    sinks = read_json(finished / "studies/sinks/results.json")["found"]
    assert sinks["names"] == {"model": "aar, seed-3", "control": "control, seed-3"}
    assert sinks["patch"]["before"] == 0
    assert [study.name for study in _studies_of(finished)] == sorted(STUDIES)


def test_the_page_of_the_run_leads_to_its_studies(finished: Path) -> None:
    html = (finished / "report.html").read_text(encoding="utf-8")
    results = read_json(finished / "results.json")
    assert [row["study"] for row in results["studies"]] == list(STUDIES)
    for row in results["studies"]:
        assert f'<a href="studies/{row["study"]}/report.html">' in html
        assert (finished / row["page"]).is_file()
        assert row["claim"]


def test_a_study_that_is_there_is_not_made_again(
    finished: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "copy")
    shutil.copytree(finished, run.path)
    (run.study("gates") / "report.html").unlink()
    before = (run.study("acf") / "results.json").stat().st_mtime_ns
    monkeypatch.setattr(processes, "count", lambda: 2)
    said: list[str] = []
    run_recipe(recipe, RunDirectory.open(run.path, recipe, resume=True), command="again", say=said.append)
    assert said == ["study of gates: aar, seed 3, by the first process"]
    assert (run.study("acf") / "results.json").stat().st_mtime_ns == before
    assert (run.study("gates") / "report.html").is_file()


def test_a_run_of_before_these_keys_is_continued(recipe: Recipe, tmp_path: Path) -> None:
    old = replace(recipe, studies=())
    run = RunDirectory.open(tmp_path / "run", old, resume=False)
    text = run.recipe.read_text(encoding="utf-8")
    run.recipe.write_text(text.replace("studies: []\n", "").replace("harness: null\n", ""), encoding="utf-8")
    assert run.recipe.read_text(encoding="utf-8") != text
    RunDirectory.open(run.path, old, resume=True)


def test_the_harness_measures_host_control_and_arm_once(
    finished: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")
    rows = [{"question": f"Ann has {n} pens and buys 2. How many?", "answer": f"#### {n + 2}"} for n in range(8)]
    for split in ("train", "test"):
        path = tmp_path / "data" / "gsm8k" / f"{split}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setenv("ROUTELAB_DATA", str(tmp_path / "data"))
    asked = replace(recipe, harness=HarnessSpec(tasks=["routelab_gsm8k"], limit=1, generation={"max_gen_toks": 4}))
    assert ("harness", "routelab_gsm8k; 1 example of each; the host, control and aar, seed 3") in planned(asked)
    run = RunDirectory.open(tmp_path / "copy", asked, resume=False)
    shutil.copytree(finished, run.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("recipe.yaml"))
    said: list[str] = []
    run_recipe(asked, run, command="first", say=said.append)
    who = ["the host", "control, seed 3", "aar, seed 3"]
    assert said == [f"routelab_gsm8k of the harness on {each}" for each in who]
    for arm in ("base", "control", "aar"):
        (results,) = run.harness(arm, "routelab_gsm8k").glob("results_*.json")
        stored = read_json(results)["config"]["routelab"]
        assert stored["dtype"] == "float32"
        assert (stored["routing"] is None) == (arm == "base")
        assert list(results.parent.glob("samples_routelab_gsm8k_*.jsonl"))
    rows_found = read_json(run.results)["harness"]
    assert {row["metric"] for row in rows_found} == {"exact_match, strict-match", "exact_match, flexible-extract"}
    assert all(list(row["arms"]) == ["base", "control", "aar"] for row in rows_found)
    html = run.report.read_text(encoding="utf-8")
    assert "evaluation harness" in html
    assert f"routelab compare {run.harness('aar', 'routelab_gsm8k')}" in html

    said.clear()
    run_recipe(asked, RunDirectory.open(run.path, asked, resume=True), command="again", say=said.append)
    assert said == []
    shutil.rmtree(run.harness("aar", "routelab_gsm8k"))
    assert list(collect(asked, run)["harness"][0]["arms"]) == ["base", "control"]


def test_unknown_names_are_refused_before_anything_is_written(recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")
    cases = {
        "did you mean 'routelab_gsm8k'": HarnessSpec(tasks=["routelab_gsm8"]),
        "run_code: true": HarnessSpec(tasks=["routelab_humaneval"]),
    }
    for said, spec in cases.items():
        with pytest.raises(EvaluationError, match=said):
            check_afterwards(replace(recipe, harness=spec))
    check_afterwards(replace(recipe, harness=HarnessSpec(tasks=["routelab_humaneval"], run_code=True)))


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("{study: acf, tasks: [mini-fact]}", "did you mean 'mini-facts'"),
        ("{study: acf, tasks: [gsm8k], options: {shotz: 5}}", "no option 'shotz'; did you mean 'shots'"),
    ],
)
def test_unknown_texts_of_a_study_are_named(study: str, said: str) -> None:
    recipe = load_recipe("mini/aar", [f"studies=[{study}]"])
    assert isinstance(recipe, Recipe)
    with pytest.raises(EvaluationError, match=said):
        check_afterwards(recipe)
