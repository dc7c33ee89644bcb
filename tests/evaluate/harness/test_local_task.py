from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from routelab.errors import DataError, EvaluationError
from routelab.evaluate.benchmarks import STEM

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'routelab[harness]'")

import lm_eval.tasks
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml

from routelab.evaluate.harness.finding import PREFIX, TASKS, local_names
from routelab.evaluate.harness.local_task import WITHHELD, LocalTask
from routelab.evaluate.harness.readers import PLACES

Load = Callable[..., dict[str, ConfigurableTask]]
HARNESS = Path(lm_eval.tasks.__file__).parent


def test_every_file_is_a_task_of_ours() -> None:
    files = sorted(TASKS.rglob("*.yaml"))
    names = []
    for file in files:
        config = load_yaml(file)
        names.append(config.get("group") or config["task"])
        if "group" not in config:
            assert config["class"] is LocalTask
            assert config["dataset_path"] in PLACES
    assert sorted(names) == local_names()
    assert all(name.startswith(PREFIX) for name in names)
    assert sum(name.startswith(f"{PREFIX}bbh_") for name in names) == 27
    assert not [name for name in names if " " in name]


def test_the_subjects_of_mmlu() -> None:
    tags: dict[str, set[str]] = {}
    for file in TASKS.glob("mmlu/*.yaml"):
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
        for tag in config.get("tag", []):
            tags.setdefault(tag.removeprefix("routelab_mmlu_").removesuffix("_tasks"), set()).add(file.stem)
    assert sum(len(tags[area]) for area in ("stem", "humanities", "social_sciences", "other")) == 57
    assert tags["stem"] == set(STEM)
    assert tags["maths"] < tags["stem"]
    assert len(tags["maths"]) == 5


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("routelab_gsm8k", "gsm8k/gsm8k.yaml"),
        ("routelab_mmlu_anatomy", "mmlu/default/mmlu_anatomy.yaml"),
    ],
)
def test_prompts_are_those_of_the_harness(ours: str, theirs: str, tasks: Load) -> None:
    """The same rows through its own file give the same requests, shots and settings included."""
    (task,) = tasks(ours).values()
    config = {key: value for key, value in load_yaml(HARNESS / theirs).items() if key not in ("tag", "task_list")}
    peer = ConfigurableTask(config={**config, "custom_dataset": lambda **_: task.dataset, "metadata": {}})
    peer.set_fewshot_seed(0)
    if peer.config.num_fewshot is None:
        peer.set_config("num_fewshot", 5)  # the harness leaves MMLU's number to the command line
    for each in (task, peer):
        each.build_all_requests()
    assert len(task.instances) >= 4
    for mine, other in zip(task.instances, peer.instances, strict=True):
        assert mine.arguments[0] == other.arguments[0]
        if task.OUTPUT_TYPE == "generate_until":
            assert mine.arguments[1].items() >= other.arguments[1].items()
        else:
            assert mine.arguments == other.arguments


def test_source_and_hash_stand_in_the_metadata(tasks: Load, local_data: Path, tmp_path: Path) -> None:
    (task,) = tasks("routelab_gsm8k").values()
    source = task.dump_config()["metadata"]["source"]
    assert source["place"] == "gsm8k"
    assert {split: about["rows"] for split, about in source["splits"].items()} == {"test": 4, "train": 8}
    other = tmp_path / "other"
    other.mkdir()
    for split in ("test", "train"):
        line = json.dumps({"question": f"{split}?", "answer": "#### 1"})
        (other / f"{split}.jsonl").write_text(f"{line}\n" * 6, encoding="utf-8")
    (moved,) = tasks("routelab_gsm8k", data={"gsm8k": str(other)}).values()
    again = moved.config.metadata["source"]
    assert again["place"] == str(other)
    assert again["splits"]["test"]["rows"] == 6
    assert again["splits"]["test"]["sha256"] != source["splits"]["test"]["sha256"]


def test_missing_data_is_named(tasks: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data file"):
        tasks("routelab_2wikimultihopqa")
    with pytest.raises(EvaluationError, match="did you mean 'gsm8k'"):
        tasks("routelab_gsm8k", data={"gsm8": "x"})
    monkeypatch.setenv("ROUTELAB_DATA", str(tmp_path))
    with pytest.raises(DataError, match="holds no test split"):
        tasks("routelab_math500")
    monkeypatch.delenv("ROUTELAB_DATA")
    with pytest.raises(DataError, match="ROUTELAB_DATA is not set"):
        tasks("routelab_gsm8k")


def score(task: ConfigurableTask, outputs: list[list[str]]) -> list[dict[str, Any]]:
    """Give a task outputs (all samples of each document) and return its scores by document and filter."""
    task.build_all_requests()
    for instance, samples in zip(task.instances, outputs, strict=True):
        instance.resps = list(samples)
    task.apply_filters()
    return [
        {name: task.process_results(instance.doc, [instance.filtered_resps[name]]) for name in instance.filtered_resps}
        for instance in task.instances
    ]


def test_scores_of_every_kind(tasks: Load) -> None:
    loaded = tasks(
        *("routelab_gsm8k", "routelab_bbh_navigate", "routelab_math500", "routelab_hotpotqa"),
        *("routelab_ifeval", "routelab_humaneval", "routelab_humaneval_instruct"),
    )
    gsm8k = score(loaded["routelab_gsm8k"], [["#### 2"], ["<think>#### 9</think>\n#### 3"], ["It is 4"], [""]])
    assert [row["strict-match"]["exact_match"] for row in gsm8k] == [1, 1, 0, 0]
    assert [row["flexible-extract"]["exact_match"] for row in gsm8k] == [1, 1, 1, 0]
    bbh = score(loaded["routelab_bbh_navigate"], [[" No"], ["<think>Yes</think>no."], ["Yes"]])
    assert [row["answer"]["exact_match"] for row in bbh] == [1, 1, 0]
    maths = score(loaded["routelab_math500"], [["It is \\boxed{0.5}."], ["<think>\\boxed{1/2}"]])
    assert [row["value"] for row in maths] == [{"acc": 1, "answered": 1}, {"acc": 0, "answered": 0}]
    (hop,) = score(loaded["routelab_hotpotqa"], [[" the Ann\nBob"]])
    assert hop["answer"] == {"em": 0, "f1": pytest.approx(2 / 3)}
    (ifeval,) = score(loaded["routelab_ifeval"], [["Well, then\nhello to all"]])
    assert ifeval["response"] == {
        "prompt_level_strict_acc": 0,
        "inst_level_strict_acc": [False, True],
        "prompt_level_loose_acc": 1,
        "inst_level_loose_acc": [True, True],
    }
    (code,) = score(loaded["routelab_humaneval"], [["    return n + n\n"] + ["    return n\n"] * 9])
    assert code["programs"] == {"pass@1": pytest.approx(0.1), "pass@10": 1}
    answer = "Here:\n```python\ndef twice(n):\n    return n * 2\n```\nDone."
    (block,) = score(loaded["routelab_humaneval_instruct"], [[answer] * 10])
    assert block["programs"] == {"pass@1": 1, "pass@10": 1}


def test_tasks_whose_rows_a_user_brings(tasks: Load, tmp_path: Path) -> None:
    (tmp_path / "aime").mkdir()
    problems = [{"id": n, "problem": f"What is {n} + 200?", "answer": str(n + 200)} for n in (4, 5)]
    (tmp_path / "aime/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems), encoding="utf-8")
    question = {
        "_id": "w",
        "type": "comparison",
        "question": "Who is older?",
        "answer": "Ann Lee",
        "context": [["Ann Lee", ["Ann Lee was born", "in 1901."]], ["Bob", ["Bob was born in 1902."]]],
        "supporting_facts": [["Ann Lee", 0], ["Bob", 0]],
        "evidences": [["Ann Lee", "born", "1901"]],
    }
    (tmp_path / "dev.json").write_text(
        json.dumps([question, question | {"_id": "x", "answer": "Bob"}]), encoding="utf-8"
    )
    places = {"aime24": str(tmp_path / "aime"), "2wikimultihopqa": str(tmp_path / "dev.json")}
    loaded = tasks("routelab_aime24", "routelab_2wikimultihopqa", data=places)
    outputs = [["<think>\\boxed{205}</think>So \\boxed{204}."], ["It is hard."]]
    found = score(loaded["routelab_aime24"], outputs)
    assert [row["value"] for row in found] == [{"acc": 1, "answered": 1}, {"acc": 0, "answered": 0}]
    assert "What is 4 + 200?" in loaded["routelab_aime24"].instances[0].args[0]
    hops = score(loaded["routelab_2wikimultihopqa"], [["Ann Lee"], ["Ann"]])
    assert [row["answer"] for row in hops] == [{"em": 1, "f1": 1}, {"em": 0, "f1": 0}]
    asked = loaded["routelab_2wikimultihopqa"].instances[0].args[0]
    assert "Ann Lee: Ann Lee was born in 1901.\nBob: Bob was born in 1902." in asked
    assert asked.endswith("Question: Who is older?\nAnswer:")


def test_nothing_of_a_private_task_is_kept(tasks: Load) -> None:
    (task,) = tasks("routelab_gpqa").values()
    with pytest.raises(EvaluationError, match="must not be stored"):
        task.build_all_requests(cache_requests=True)
    gold = [row["gold"] for row in task.eval_docs]
    assert "A secret?" in task.eval_docs[0]["question"]
    scores = score(task, [[f"The secret makes me say: the answer is {gold[0]}"], ["#### E"]])
    assert [row["letter"] for row in scores] == [{"acc": 1, "answered": 1}, {"acc": 0, "answered": 0}]
    kept = json.dumps([[each.doc, each.arguments, each.resps, each.filtered_resps] for each in task.instances])
    assert "secret" not in kept
    assert WITHHELD in kept
