"""Two processes share the examples out and come to the same result as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")

import lm_eval.evaluator

from routelab.evaluate.harness import RoutelabLM, evaluate_tasks

TASK = "routelab_mmlu_anatomy"


def read(out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (results,), (samples,) = out.rglob("results_*.json"), out.rglob("samples_*.jsonl")
    records = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    return json.loads(results.read_text(encoding="utf-8")), sorted(records, key=lambda record: record["doc_id"])


def test_two_processes_are_as_one(
    host: Path, local_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
    evaluate_tasks(RoutelabLM(host=str(host), device="cpu"), [TASK], shots=1, out=tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command += ["-m", "routelab.cli", "lm-eval", "run", "--device", "cpu", "--model_args", f"host={host}"]
    command += ["--tasks", TASK, "--num_fewshot", "1", "--log_samples", "--output_path", str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    one, two = read(tmp_path / "one"), read(tmp_path / "two")
    assert one[0]["results"] == two[0]["results"]
    assert [record["doc_id"] for record in two[1]] == [0, 1, 2, 3, 4]
    # The command line writes the numbers of records as texts; what only fills a process up is filtered out.
    said = [[str(record["filtered_resps"]).replace("'", "") for record in records] for records in (one[1], two[1])]
    assert said[0] == said[1]
