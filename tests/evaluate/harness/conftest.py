"""A folder of a few rows of every source, and tasks of the harness that read it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")

from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

from routelab.evaluate.harness.finding import task_manager

Row = dict[str, Any]


def question(number: int, subject: str) -> Row:
    return {
        "subject": subject,
        "question": f"What is {number} + {number % 3}?",
        "choices": [str(number + k) for k in range(4)],
        "answer": number % 3,
    }


def solved(number: int) -> Row:
    return {"question": f"Ann has {number} pens and buys 2. How many?", "answer": f"{number} + 2\n#### {number + 2}"}


ROWS: dict[str, Sequence[Row]] = {
    "gsm8k/test": [solved(n) for n in range(4)],
    "gsm8k/train": [solved(n) for n in range(10, 18)],
    "mmlu/test": [question(n, name) for name in ("anatomy", "astronomy") for n in range(5)],
    "mmlu/dev": [question(n, name) for name in ("anatomy", "astronomy") for n in range(20, 25)],
    "bbh/navigate": [{"input": f"Take {n} steps. Back?", "target": "No"} for n in range(3)],
    "math500/test": [{"problem": "What is 1/2?", "answer": "\\frac{1}{2}", "subject": "Algebra", "level": 1}] * 2,
    "humaneval/test": [
        {
            "task_id": "HumanEval/0",
            "prompt": 'def twice(n):\n    """Return 2 n."""\n',
            "entry_point": "twice",
            "canonical_solution": "    return 2 * n\n",
            "test": "def check(candidate):\n    assert candidate(3) == 6\n",
        }
    ],
    "ifeval/test": [
        {
            "key": 1,
            "prompt": "Say hello without a comma.",
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": [{"num_words": None}, {"relation": "at least", "num_words": 3}],
        }
    ],
    "hotpotqa/dev_distractor_sample": [
        {
            "id": "h",
            "question": "Who?",
            "answer": "Ann Lee",
            "type": "bridge",
            "context": [["Ann Lee", ["Ann Lee is a ", "singer."]], ["Bob", ["Bob knows her."]]],
            "supporting_facts": [["Ann Lee", 0]],
        }
    ],
}


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name, lines in ROWS.items():
        path = folder / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    header = "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n"
    (folder / "gpqa").mkdir()
    (folder / "gpqa" / "gpqa_diamond.csv").write_text(header + "A secret?,yes,no,maybe,never\n" * 2)
    return folder


@pytest.fixture
def local_data(rows: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROUTELAB_DATA", str(rows))
    return rows


@pytest.fixture
def tasks(local_data: Path) -> Callable[..., dict[str, ConfigurableTask]]:
    """Factory ``tasks(*names, **metadata)``: our tasks by name, ready to build prompts."""

    def load(*names: str, **metadata: Any) -> dict[str, ConfigurableTask]:
        found = task_manager(names, metadata=metadata).load(list(names))["tasks"]
        for task in found.values():
            task.set_fewshot_seed(0)
        return found

    return load


def requests(task: ConfigurableTask, shots: int | None = None) -> list[Instance]:
    if shots is not None:
        task.set_config("num_fewshot", shots)
    task.build_all_requests()
    return list(task.instances)
