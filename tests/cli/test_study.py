"""Words to studies: each is listed, writes its directory, and refuses what makes no sense before it loads a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import routelab
from routelab.cli import app
from routelab.errors import ConfigError, RecipeError, RoutelabError
from routelab.report.studies import STUDIES

run = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def call(*words: str) -> Any:
    result = run.invoke(app, ["study", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def routing(host: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, _ = routelab.load_host(str(host))
    routelab.attach(model, routelab.AARConfig(layers=[1], window=4, init_std=0.5))
    return routelab.save(model, tmp_path_factory.mktemp("routing"))


def test_every_study_is_listed_and_has_a_page() -> None:
    listed = [line.split()[0] for line in call().stdout.splitlines()[1:] if line.startswith(" ") and line.split()]
    assert set(STUDIES) <= set(listed)


def records(path: Path, rows: list[tuple[int, bool]]) -> Path:
    lines = [
        json.dumps(
            {"id": str(i), "sample": 0, "tokens": n, "characters": 9 * n, "correct": right, "score": float(right)}
        )
        for i, (n, right) in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_lengths(tmp_path: Path) -> None:
    ours = records(tmp_path / "a.jsonl", [(10, True), (20, False), (30, False), (40, True)])
    theirs = records(tmp_path / "b.jsonl", [(10, True), (40, False), (60, False), (50, False)])
    words = ["lengths", "--records", str(ours), "--against", str(theirs), "--name", "AAR", "--out", str(tmp_path / "s")]
    said = call(*words).stdout
    assert "Where both are wrong, AAR writes 50.0% fewer" in said
    results = json.loads((tmp_path / "s" / "results.json").read_text())
    assert (results["kind"], results["study"], results["host"]) == ("study", "lengths", None)
    assert results["found"]["groups"]["both wrong"]["n"] == 2
    assert {path.name for path in (tmp_path / "s").iterdir()} == {
        "results.json",
        "manifest.json",
        "report.html",
        "figures",
    }
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["data"][str(ours)]["rows"] == 4
    call(*words)  # the same study may be made again in its place
    with pytest.raises(RecipeError, match="holds no study"):
        call(*words[:-1], str(tmp_path))


def test_studies_of_a_routed_host(host: Path, routing: Path, tmp_path: Path) -> None:
    shared = ["--host", str(host), "--limit", "2", "--longest", "40"]
    found = {}
    for name, words in {
        "acf": ["--window", "8"],
        "sinks": ["--routing", str(routing), "--patch"],
        "gates": ["--routing", str(routing)],
        "routing": ["--routing", str(routing), "--compare", "--task", "mini-facts", "--task", "mini-paragraphs"],
    }.items():
        out = tmp_path / name
        assert "report.html" in call(name, *shared, *words, "--out", str(out)).stdout
        found[name] = json.loads((out / "results.json").read_text())["found"]
        manifest = json.loads((out / "manifest.json").read_text())
        assert all(entry["rows"] == 2 for entry in manifest["data"].values())
        assert manifest["host"]
    assert [curve["layer"] for curve in found["acf"]["curves"]] == [0, 1]
    assert (found["sinks"]["routed"], found["sinks"]["marked"]) == (1, None)
    assert found["sinks"]["patch"]["before"] == 0
    assert [layer["layer"] for layer in found["gates"]["layers"]] == [1]
    assert found["routing"]["tasks"] == ["mini-facts", "mini-paragraphs"]
    assert found["routing"]["agreement"]["0"] == 1.0
    assert found["routing"]["names"]["control"] == "the host"


def test_sweeps_list_their_cells_without_training() -> None:
    said = call("depth", "--start", "4", "--single", "2", "--dry-run").stdout
    assert all(name in said for name in ("control", "from-04", "only-02", "layers [4, 5]"))
    assert "from-00" in call("depth", "--dry-run").stdout
    said = call("window", "--size", "20", "--views", "time", "--dry-run").stdout
    assert "time-020" in said
    assert "3 seeds each" in said
    said = call("seeds", "--seed", "4", "--seed", "2", "--dry-run").stdout
    assert all(text in said for text in ("seed-4", "seed 2, arms aar, routing-only", "1 seed each"))


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["sinks"], ConfigError, "give one with --routing"),
        (["sinks", "--routing", "x", "--layer", "1"], ConfigError, "add --patch"),
        (["depth", "--start", "9", "--dry-run"], RoutelabError, r"layers \[9\] cannot be swept"),
        (["depth", "--recipe", "mini/pathlock", "--dry-run"], RecipeError, "no training recipe"),
        (["window", "--views", "phase", "--dry-run"], RecipeError, "no view is called 'phase'"),
        (["seeds", "--recipe", "mini/pathlock", "--dry-run"], RecipeError, "no training recipe"),
        (["seeds", "--seed", "1", "--seed", "1", "--dry-run"], RecipeError, "names a cell twice"),
        (["interference", "--recipe", "mini/aar"], RecipeError, "no recipe of kind modes"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(*words)


def test_a_sweep_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match="continue a sweep with --resume"):
        call("depth", "--out", str(tmp_path))
    with pytest.raises(RecipeError, match="holds something else than a sweep"):
        call("seeds", "--resume", "--out", str(tmp_path))
    with pytest.raises(RecipeError, match="file is a file and cannot hold a sweep"):
        call("window", "--out", str(tmp_path / "file"))
    (tmp_path / "results.json").write_text('{"kind": "study", "study": "acf"}')
    with pytest.raises(RecipeError, match="holds results of 'acf', not of 'depth'"):
        call("depth", "--resume", "--out", str(tmp_path))
    assert not (tmp_path / "cells").exists()


@pytest.mark.parametrize("study", ["convergence", "working-set", "margins"])
def test_studies_of_a_recurrent_host(study: str, tmp_path: Path) -> None:
    words = [study, "--host", "mini-recurrent", "--context", "64", "--limit", "1", "--num-steps", "4"]
    settings = [] if study == "convergence" else ["--set", "block_size=16", "--set", "discovery_steps=2"]
    call(*words, *settings, "--out", str(tmp_path / "s"))
    results = json.loads((tmp_path / "s/results.json").read_text(encoding="utf-8"))
    assert (results["kind"], results["study"], results["host"]) == ("study", study, "mini-recurrent")
    assert len(list((tmp_path / "s/figures").glob("*.png"))) == len(list((tmp_path / "s/figures").glob("*.csv"))) > 0
    assert (tmp_path / "s/report.html").stat().st_size < 2_000_000
    found = results["found"]
    match study:
        case "convergence":
            assert {each["num_steps"] for each in found["settings"].values()} == {4}
        case "working-set":
            assert (found["num_steps"], found["discovery_steps"]) == (4, 2)
        case _:
            assert (found["prompts"], found["num_steps"]) == (1, 4)
