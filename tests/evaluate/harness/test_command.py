"""The harness's own command line with our model and tasks, and the same from Python; then both compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import routelab
from routelab.errors import EvaluationError, MissingPackageError
from routelab.evaluate.comparing import compare_results

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")

import lm_eval.evaluator

from routelab.evaluate import harness
from routelab.evaluate.harness import RoutelabLM, command, evaluate_tasks, run_command
from routelab.evaluate.result_files import HARNESS_SCHEMA, read_results
from routelab.hosts.files import host_files
from routelab.stored import host_digest

MODEL = ("--batch_size", "2")
GSM8K = ("--gen_kwargs", "max_gen_toks=6", "--num_fewshot", "1", "--limit", "3")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, local_data: Path) -> None:
    """Leave out the harness's survey of the machine, which takes seconds, and its handler of logs, which stays."""
    monkeypatch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
    monkeypatch.setattr(command, "setup_logging", lambda: None)


@pytest.fixture
def routing(host: Path, tmp_path: Path) -> Path:
    model, _ = routelab.load_host(str(host), dtype=torch.float32)
    routelab.attach(model, routelab.RoutingOnlyConfig())
    with torch.no_grad():
        for parameter in routelab.attached(model)[0].parameters():
            parameter.normal_(std=2)
    return routelab.save(model, tmp_path / "routing")


def newest(folder: Path) -> dict[str, Any]:
    (file,) = folder.rglob("results_*.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_all_arguments_reach_the_harness(host: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    tasks = "routelab_gsm8k,routelab_mmlu_anatomy"
    asked = ("--system_instruction", "Be brief.", "--apply_chat_template")
    kept = ("--output_path", str(out), "--log_samples")
    run_command(["--model_args", f"host={host}", *MODEL, "--tasks", tasks, *GSM8K, *kept, *asked])
    assert "routelab_gsm8k" in capsys.readouterr().out
    results = newest(out)
    ours = results["config"]["routelab"]
    assert (ours["schema"], ours["host"], ours["call"], ours["dtype"]) == (HARNESS_SCHEMA, str(host), {}, "float32")
    assert ours["host_files"] == host_files(str(host))
    assert read_results(out).host["weights"] == host_digest({"host": ours["host_files"]})
    assert results["system_instruction"] == "Be brief."
    assert results["chat_template_sha"]
    assert results["n-shot"] == {"routelab_gsm8k": 1, "routelab_mmlu_anatomy": 1}
    about = results["configs"]["routelab_gsm8k"]
    assert [each["name"] for each in about["filter_list"]] == ["strict-match", "flexible-extract"]
    assert about["generation_kwargs"]["max_gen_toks"] == 6
    assert about["metadata"]["source"]["splits"]["test"]["rows"] == 4
    found = read_results(out)
    assert ("routelab_gsm8k", "exact_match (strict-match)") in found.measured
    assert len(found.measured["routelab_mmlu_anatomy", "acc"].scores[0]) == 3


def test_from_python_and_compared(host: Path, routing: Path, tmp_path: Path) -> None:
    tasks, settings = ["routelab_mmlu_anatomy", "routelab_gsm8k"], {"limit": 4, "generation": {"max_gen_toks": 6}}
    plain = RoutelabLM(host=str(host), device="cpu", batch_size=2)
    routed = RoutelabLM(host=str(host), routing=str(routing), device="cpu", batch_size=2)
    results = evaluate_tasks(plain, tasks, shots=1, out=tmp_path / "plain", **settings)
    assert results["config"]["routelab"]["methods"] == []
    assert results["results"]["routelab_mmlu_anatomy"]["acc,none"] in {0, 0.25, 0.5, 0.75, 1}
    assert results == newest(tmp_path / "plain")
    evaluate_tasks(routed, tasks, shots=1, out=tmp_path / "routed", **settings)
    found = compare_results(str(tmp_path / "routed"), str(tmp_path / "plain"))
    by_name = {(each["task"], each["metric"]): each for each in found["tasks"]}
    assert set(by_name) >= {("routelab_mmlu_anatomy", "acc"), ("routelab_gsm8k", "exact_match (strict-match)")}
    acc = by_name["routelab_mmlu_anatomy", "acc"]
    assert acc["difference"]["mean"] == pytest.approx(acc["first"] - acc["second"])
    assert acc["answers"] == 4
    assert {each["setting"] for each in found["settings"]} == {"routing", "methods"}
    same = compare_results(str(tmp_path / "plain"), str(tmp_path / "plain"))
    assert all(each["changed"] == 0 and each["difference"]["low"] == 0 for each in same["tasks"])


def test_wrong_tasks_and_unconfirmed_code(host: Path) -> None:
    with pytest.raises(EvaluationError, match="did you mean 'routelab_gsm8k'"):
        run_command(["--model_args", f"host={host}", *MODEL, "--tasks", "routelab_gsm9k"])
    with pytest.raises(EvaluationError, match="--confirm_run_unsafe_code"):
        run_command(["--model_args", f"host={host}", *MODEL, "--tasks", "routelab_humaneval", "--limit", "1"])
    model = RoutelabLM(host=str(host), device="cpu")
    with pytest.raises(EvaluationError, match="did you mean 'routelab_mmlu_anatomy'"):
        evaluate_tasks(model, ["routelab_mmlu_anatomie"])
    with pytest.raises(EvaluationError, match="--confirm_run_unsafe_code"):
        evaluate_tasks(model, ["routelab_humaneval"], limit=1)


def test_code_runs_where_it_is_confirmed(host: Path) -> None:
    model = RoutelabLM(host=str(host), device="cpu", batch_size=10)
    found = evaluate_tasks(model, ["routelab_humaneval"], run_code=True, generation={"max_gen_toks": 4})
    assert found["results"]["routelab_humaneval"]["pass@10,programs"] == 0


def test_without_the_harness_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'lm_eval'", name="lm_eval")

    monkeypatch.setattr(harness, "import_module", absent)
    with pytest.raises(MissingPackageError, match=r"pip install 'routelab\[harness\]'"):
        _ = harness.RoutelabLM
