"""The commands: what they print, how they fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import routelab
from routelab import __version__
from routelab.cli import app
from routelab.cli.runs import _free
from routelab.errors import CheckpointError, ConfigError, EvaluationError, RoutelabError

run = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def call(*words: str) -> Any:
    result = run.invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def routing(host: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, _ = routelab.load_host(str(host))
    routelab.attach(model, routelab.AARConfig(layers=[1], window=4))
    return routelab.save(model, tmp_path_factory.mktemp("routing"))


def test_version() -> None:
    assert call("--version").stdout.strip() == f"routelab {__version__}"


def test_generate_prints_the_answer(host: Path, routing: Path) -> None:
    words = ["generate", "Tom has 3 apples.", "--host", str(host), "--max-new-tokens", "4"]
    plain = json.loads(call(*words, "--json").stdout)
    assert plain["tokens"] <= 4
    assert call(*words).stdout == plain["output"] + "\n"
    assert "<|im_start|>user" in plain["prompt"]
    routed = json.loads(call(*words, "--routing", str(routing), "--raw", "--json").stdout)
    assert routed["prompt"] == "Tom has 3 apples."


def test_trace_as_table_and_as_json(host: Path, routing: Path) -> None:
    words = ["trace", "Tom has 3 apples.", "--host", str(host), "--routing", str(routing), "--raw"]
    found = json.loads(call(*words, "--json").stdout)
    assert found["layers"] == [0, 1]
    assert {step["token"] for step in found["steps"]} >= {"Tom", "3"}
    assert all(len(step["experts"]) == 2 and bool(step["gates"]) == (step["layer"] == 1) for step in found["steps"])
    table = call(*words, "--layer", "1").stdout
    assert "layer 1" in table
    assert "gate, time" in table
    assert "layer 0" not in table


def test_evaluate_reports_and_records(host: Path, tmp_path: Path) -> None:
    words = ["evaluate", "--host", str(host), "--task", "mini-arithmetic", "--limit", "3", "--max-new-tokens", "5"]
    shown = call(*words, "--option", "steps=2", "--out", str(tmp_path / "out")).stdout
    assert "on mini-arithmetic: accuracy 0.0%" in shown
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    records = (tmp_path / "out/records.jsonl").read_text(encoding="utf-8").splitlines()
    assert (summary["n"], len(records), summary["arguments"]["options"]["steps"]) == (3, 3, 2)
    assert "model.safetensors" in summary["host_files"]
    assert json.loads(call(*words, "--json").stdout)["accuracy"] == 0.0


def test_evaluate_takes_a_depth_and_a_method_and_says_so(tmp_path: Path) -> None:
    words = ["evaluate", "--host", "mini-recurrent", "--task", "mini-arithmetic", "--limit", "1"]
    words += ["--max-new-tokens", "3", "--num-steps", "3", "--out", str(tmp_path)]
    call(*words, "--method", "wise", "--set", "block_size=8")
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["call"] == {"num_steps": 3}
    assert [(each["name"], each["config"]["block_size"]) for each in summary["methods"]] == [("wise", 8)]
    assert len(summary["chat_template_sha256"]) == 64
    with pytest.raises(ConfigError, match="--set changes a setting of --method"):
        call(*words, "--set", "block_size=8")
    with pytest.raises(ConfigError, match="is for tasks of --harness"):
        call(*words, "--confirm-run-unsafe-code")


def test_evaluate_refuses_a_depth_of_a_host_that_has_none(host: Path) -> None:
    with pytest.raises(EvaluationError, match="takes no 'num_steps'"):
        call("evaluate", "--host", str(host), "--task", "mini-arithmetic", "--limit", "1", "--num-steps", "3")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("limit=3", "no option 'limit'"),
        ("name=x", "no option 'name'"),
        ("largest=abc", "'largest' must be of type int"),
    ],
)
def test_evaluate_names_a_wrong_option(host: Path, option: str, said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        call("evaluate", "--host", str(host), "--task", "mini-arithmetic", "--limit", "1", "--option", option)


def test_recipes_lists_and_prints() -> None:
    listed = call("recipes").stdout
    assert "mini/aar" in listed
    assert "paper/aar-qwen36" in listed
    assert call("recipes", "mini/aar").stdout.startswith("# ")


def test_dry_run_of_a_paper_recipe() -> None:
    shown = call("run", "paper/aar-olmoe", "--dry-run").stdout
    for said in (
        "6,919,161,856 parameters",
        "1,889,664",
        "3,986,816",
        "230 (234,836 rows × 1 epochs, 1,024 rows a step)",
    ):
        assert said in shown, said


def test_doctor_says_why_not() -> None:
    shown = call("doctor").stdout
    assert f"{torch.__version__}" in shown
    assert "window attention" in shown
    assert "CUDA" in shown


def test_report_draws_a_run_again(tmp_path: Path) -> None:
    example = _example()
    for name, value in (("results", example.example_results()), ("manifest", example.example_manifest())):
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    lines = [json.dumps(row) for row in example.example_metrics()]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shown = call("report", str(tmp_path)).stdout
    assert "On mini-arithmetic, aar reaches 65.5% accuracy" in shown
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "mini/arr"], "did you mean 'mini/aar'?"),
        (["run", "mini/aar", "--set", "trian.steps=1"], "unknown key 'trian'; did you mean 'train'?"),
        (["generate", "hi", "--host", "mini-mo"], "did you mean 'mini-moe'?"),
        (["generate", " "], "the prompt is empty"),
        (["report", "."], "holds no results.json"),
        (["evaluate", "--task", "gsm9k", "--limit", "1"], "did you mean 'gsm8k'?"),
        (["run", "mini/aar", "--out", __file__], "cannot be a run directory"),
        (["run", "mini/aar", "--set", "arms.aar.0.method=[1]"], "no method is called [1]"),
    ],
)
def test_errors_are_named(words: list[str], said: str) -> None:
    with pytest.raises(RoutelabError) as caught:
        call(*words)
    assert said in str(caught.value)


def test_damaged_routing_is_named(host: Path, routing: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "routing"
    shutil.copytree(routing, damaged)
    whole = (damaged / "routing.safetensors").read_bytes()
    (damaged / "routing.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"routing\.safetensors is damaged or truncated"):
        call("generate", "hi", "--host", str(host), "--routing", str(damaged))


def test_an_error_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-m", "routelab.cli", "run", "mini/arr[bold]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: no recipe file and no shipped recipe is called 'mini/arr[bold]'")


def test_demo_takes_the_next_free_name(tmp_path: Path) -> None:
    assert _free(tmp_path / "demo") == tmp_path / "demo"
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo-2").mkdir()
    assert _free(tmp_path / "demo") == tmp_path / "demo-3"


def _example() -> ModuleType:
    import importlib.util

    path = Path(__file__).parent / "report" / "example.py"
    spec = importlib.util.spec_from_file_location("report_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, tokenizer = routelab.load_host("mini-dense", dtype=torch.float32)
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    return routelab.save(model, tmp_path_factory.mktemp("locked"))


PROMPT = "Ben has 3 keys. How many keys does Ben have?"


def test_generate_in_a_mode_appends_its_word(locked: Path) -> None:
    words = ["generate", PROMPT, "--host", "mini-dense", "--routing", str(locked), "--max-new-tokens", "3", "--json"]
    for mode in ("think", "no_think"):
        assert f"/{mode}<|im_end|>" in json.loads(call(*words, "--mode", mode).stdout)["prompt"]
    with pytest.raises(RoutelabError, match="names no mode"):
        call(*words)
    with pytest.raises(RoutelabError, match="no path-locked experts"):
        call("generate", PROMPT, "--host", "mini-dense", "--mode", "think")


def test_trace_of_a_path_locked_model_is_its_decision(locked: Path) -> None:
    words = ["trace", f"{PROMPT} /no_think", "--host", "mini-dense", "--routing", str(locked)]
    assert json.loads(call(*words, "--json").stdout)["mode"] == {"name": "no_think", "index": 0, "from": "word"}
    shown = call(*words).stdout
    assert "how the mode was decided" in shown
    assert "0 (no_think)" in shown


def test_export_writes_a_plain_checkpoint_of_each_mode(locked: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    shown = call("export", "--routing", str(locked), "--out", str(out), "--dtype", "float32").stdout
    assert f"think: {out / 'think'}" in shown
    for mode in ("think", "no_think"):
        assert json.loads((out / mode / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]


def test_chat_switches_the_mode_each_turn(locked: Path) -> None:
    said = f"{PROMPT}\n/think\n{PROMPT}\n\n"
    words = ["chat", "--routing", str(locked), "--max-new-tokens", "3"]
    result = run.invoke(app, words, input=said)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("[no_think]") == 2
    assert result.stdout.count("[think]") == 2


FACTS = Path(__file__).parents[1] / "examples" / "facts.jsonl"


@pytest.fixture(scope="module")
def paris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("constructed") / "paris"
    shown = call("construct", str(FACTS), "--eps", "0.01", "--out", str(folder)).stdout
    assert "certificate of theorem 4.2" in shown
    assert str(folder / "summary.md") in shown
    return folder


def test_a_constructed_model_completes_and_explains(paris: Path) -> None:
    assert call("generate", "Paris is in", "--host", str(paris)).stdout == "Paris is in France.\n"
    found = json.loads(call("trace", "Paris is in", "--host", str(paris), "--json").stdout)
    assert (found["next"], found["expert"], found["valid"]) == ("France", "country of a city", True)
    assert found["probability"] > 0.99
    assert found["neurons"]
    assert "country of a language" in call("trace", "Hindi is spoken", "--host", str(paris)).stdout


def test_verify_checks_again_and_notices_a_changed_weight(paris: Path, tmp_path: Path) -> None:
    assert "certificate of theorem 4.2" in call("construct", "--verify", str(paris)).stdout
    copy = tmp_path / "copy"
    shutil.copytree(paris, copy)
    tensors = load_file(copy / "model.safetensors")
    tensors["model.experts.0.up.weight"][0, 0] += 1.0
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError):
        call("construct", "--verify", str(copy))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a file of facts, or --verify"),
        ([str(FACTS)], "--out is missing"),
        ([str(FACTS), "--out", "OUT", "--eps", "2"], "eps must be between 0 and 1"),
        ([str(FACTS), "--out", "OUT", "--router", "template"], "is"),
        (["nowhere.jsonl", "--out", "OUT"], "nowhere.jsonl"),
    ],
)
def test_construct_names_what_is_wrong(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(RoutelabError, match=message):
        call("construct", *[str(tmp_path / "out") if word == "OUT" else word for word in words])


def test_a_wrong_cell_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = ["run", "demo/table1", "--out", str(tmp_path / "run"), "--cell"]
    with pytest.raises(RoutelabError, match="no such cell"):
        call(*table, "tasks=7")
    with pytest.raises(RoutelabError, match="no cells"):
        call("run", "mini/aar", "--out", str(tmp_path / "run"), "--cell", "tasks=7")
    assert not (tmp_path / "run").exists()
    assert "2 of 3" in call(*table, "loss=ce", "--cell", "loss=task_router", "--dry-run").stdout
