"""A run on working sets: every condition a file, resumable, with a page that tells it; and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from typer.testing import CliRunner

from routelab.cli import app
from routelab.errors import DataError, HostError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.hosts.recurrent import RecurrentConfig, RecurrentForCausalLM
from routelab.recipe import WorkingSetsRecipe, parse_recipe
from routelab.rundir import RunDirectory, read_json, read_jsonl
from routelab.study.working_set_saved import load_supports
from routelab.working_sets.check import check_working_sets
from routelab.working_sets.run import run_working_sets


@pytest.fixture(scope="module")
def recurrent_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Huginn with the minis' tokenizer, saved as an ordinary checkpoint directory."""
    folder = tmp_path_factory.mktemp("recurrent") / "host"
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(0)
    config = RecurrentConfig(
        architecture="huginn",
        n_embd=16,
        n_heads=2,
        intermediate_size=24,
        n_layers_in_prelude=1,
        n_layers_in_recurrent_block=2,
        n_layers_in_coda=1,
        vocab_size=len(tokenizer),
        padding_multiple=64,
        block_size=512,
        mean_recurrence=4,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    RecurrentForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def small(folder: Path, **changes: Any) -> WorkingSetsRecipe:
    values: dict[str, Any] = {
        "kind": "working-sets",
        "name": "small",
        "host": {"name": str(folder), "dtype": "float32"},
        "num_steps": 6,
        "conditions": ["full", "size_matched", "truncate", "wise"],
        "wise": {"discovery_steps": 3, "window": 2, "block_size": 8, "mass": 0.9},
        "sweeps": {"mass": [1.0], "block_size": [16]},
        "seeds": [0, 1],
        "questions": {"limit": 4, "contexts": [64, 96], "max_new_tokens": 2, "batch_size": 4},
        "measure": {"routing": 2, "convergence": 2},
    }
    recipe = parse_recipe({**values, **changes}, "small")
    assert isinstance(recipe, WorkingSetsRecipe)
    return recipe


@pytest.fixture(scope="module")
def finished(recurrent_host: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("working-sets") / "run"
    recipe = small(recurrent_host)
    run_working_sets(recipe, RunDirectory.open(folder, recipe, resume=False), command="routelab run small")
    return folder


def test_every_condition_answers_the_same_questions(finished: Path) -> None:
    results = read_json(finished / "results.json")
    assert list(results["contexts"]) == ["64", "96"]
    for tokens, context in results["contexts"].items():
        assert list(context["variants"]) == ["full", "size_matched", "truncate", "wise"]
        ids = {
            tuple(row["id"] for row in read_jsonl(finished / f"records/tokens-{tokens}/{name}/seed-{seed}.jsonl"))
            for name in context["variants"]
            for seed in (0, 1)
        }
        assert len(ids) == 1
        assert context["tokens"] == pytest.approx(int(tokens), rel=0.5)
    assert list(results["contexts"]["64"]["sweeps"]) == ["mass-1.0", "block_size-16"]
    assert results["contexts"]["96"]["sweeps"] == {}


def test_all_of_the_mass_is_full_attention(finished: Path) -> None:
    full, all_mass = (read_jsonl(finished / f"records/tokens-64/{name}/seed-0.jsonl") for name in ("full", "mass-1.0"))
    for ours, theirs in zip(all_mass, full, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
    coverage = read_json(finished / "results.json")["contexts"]["64"]["routing"]["coverage"]
    assert coverage["mass-1.0"]["density"] == 1.0
    assert 0.9 - 1e-6 <= coverage["wise"]["future_mass"] <= 1
    assert "truncate" not in coverage


def test_working_sets_are_saved_and_sizes_match(finished: Path) -> None:
    saved = load_supports(finished / "records/tokens-64/supports.safetensors")
    asked = [row["id"] for row in read_jsonl(finished / "records/tokens-64/full/seed-0.jsonl")]
    assert sorted(saved) == sorted(asked[:2])
    context = read_json(finished / "results.json")["contexts"]["64"]
    assert context["routing"]["audit"]["equal"] == context["routing"]["audit"]["units"] > 0
    assert context["split_half"]["pooled"]["n"] == 4
    assert context["variants"]["wise"]["from full"]["changed"] <= 4


def test_seeds_are_of_the_initial_state(finished: Path) -> None:
    first, second = (read_jsonl(finished / f"records/tokens-64/full/seed-{seed}.jsonl") for seed in (0, 1))
    assert [row["loss"] for row in first] != [row["loss"] for row in second]


def test_the_page_has_figures_and_tables(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert "mean step of convergence" in page
    assert {path.stem for path in (finished / "figures").glob("*.png")} == {
        "differences", "convergence", "stability", "scaling", "working-set-maps",
    }  # fmt: skip


def test_a_run_goes_on_where_it_stopped(finished: Path, recurrent_host: Path) -> None:
    missing = finished / "records/tokens-96/wise/seed-1.jsonl"
    kept, before = finished / "records/tokens-96/full/seed-1.jsonl", missing.read_text(encoding="utf-8")
    missing.unlink()
    written = kept.stat().st_mtime_ns
    recipe = small(recurrent_host)
    run_working_sets(recipe, RunDirectory.open(finished, recipe, resume=True), command="again")
    assert missing.read_text(encoding="utf-8") == before
    assert kept.stat().st_mtime_ns == written


def test_the_check_needs_no_weights(recurrent_host: Path) -> None:
    facts = dict(check_working_sets(small(recurrent_host)))
    assert "parameters" in facts["host"]
    assert facts["questions"] == "4 of mini-paragraphs, 2 hops"
    with pytest.raises(DataError, match=r"602 tokens with the answer; .* has 512"):
        check_working_sets(small(recurrent_host, questions={"contexts": [600], "max_new_tokens": 2}))
    with pytest.raises(HostError, match="no depth-recurrent host"):
        check_working_sets(small(recurrent_host, host={"name": "mini-dense"}))


def test_generate_and_trace(recurrent_host: Path) -> None:
    told = ["--host", str(recurrent_host), "--num-steps", "4"]
    found = CliRunner().invoke(
        app, ["generate", "hello", *told, "--method", "wise", "--set", "discovery_steps=2", "--max-new-tokens", "2"]
    )
    assert found.exit_code == 0, found.output
    found = CliRunner().invoke(app, ["trace", "hello there", *told, "--set", "block_size=8", "--json"])
    assert found.exit_code == 0, found.output
    steps = json.loads(found.output)["steps"]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert steps[0]["stability"] is None
    assert 0 < steps[-1]["density"] <= 1
    assert sum(weight for _, _, weight in steps[0]["looks"]) <= 1 + 1e-5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "aar"], "aar must be trained first"),
        (["--method", "wize"], "unknown method 'wize'; did you mean 'wise'"),
        (["--method", "wise", "--set", "mas=1"], "wise has no setting 'mas'; did you mean 'mass'"),
        (["--set", "mass=1"], "there is none"),
    ],
)
def test_bad_options_are_named(recurrent_host: Path, options: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["generate", "hello", "--host", str(recurrent_host), *options])
    assert found.exit_code != 0
    assert said in str(found.exception) + found.output
