from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import DataError, EvaluationError
from routelab.evaluate.tasks import INSTRUCTION, TASKS, get_task, task_with


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    for split, count in (("train", 12), ("test", 5)):
        rows = [
            {
                "question": f"{split} {i}: 1000 + {i}?",
                "answer": f"1000 + {i} = <<1000+{i}={1000 + i}>>{1000 + i}\n#### 1,00{i}",
            }
            for i in range(count)
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_gsm8k_text_prompt(gsm8k: Path) -> None:
    task = get_task("gsm8k", path=str(gsm8k), limit=3)
    assert len(task.examples) == 3
    assert [example["gold"] for example in task.examples] == ["1000", "1001", "1002"]
    prompt = task.examples[1]["prompt"]
    assert prompt.count("Question: train") == 8
    assert prompt.endswith("\n\nQuestion: test 1: 1000 + 1?\nAnswer:")
    assert "<<" not in prompt
    assert "\n#### 1,00" in prompt
    assert "test 0" not in prompt
    assert task.stop == ("Question:",)
    assert dict(task.options) == {"path": str(gsm8k), "split": "test", "shots": 8, "chat": False, "seed": 0}


def test_gsm8k_examples_are_chosen_by_seed(gsm8k: Path) -> None:
    prompts = [get_task("gsm8k", path=str(gsm8k), seed=seed).examples[0]["prompt"] for seed in (0, 0, 1)]
    assert prompts[0] == prompts[1] != prompts[2]
    shared = {example["prompt"].rpartition("Question: ")[0] for example in get_task("gsm8k", path=str(gsm8k)).examples}
    assert len(shared) == 1, "every question has the same worked examples before it"


@pytest.mark.parametrize("shots", [0, 2])
def test_gsm8k_chat_prompt(shots: int, gsm8k: Path) -> None:
    task = get_task("gsm8k", path=str(gsm8k), shots=shots, chat=True)
    messages = task.examples[0]["prompt"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * shots + ["user"]
    assert messages[0]["content"].startswith(INSTRUCTION)
    assert sum(INSTRUCTION in message["content"] for message in messages) == 1
    assert messages[-1]["content"].endswith("test 0: 1000 + 0?")
    assert task.stop == ()


def test_a_file_stands_for_its_split(gsm8k: Path) -> None:
    by_file = get_task("gsm8k", path=str(gsm8k / "test.jsonl"))
    assert by_file.sha256 == get_task("gsm8k", path=str(gsm8k)).sha256


def test_local_directories_come_before_the_hub(gsm8k: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    rows = [{"question": "1 + 1?", "answer": "#### 2"}]
    monkeypatch.setattr(
        "routelab.evaluate.splits.load_rows", lambda *given, **named: asked.append((given, named)) or rows
    )
    monkeypatch.setenv("ROUTELAB_DATA", str(gsm8k.parent.parent))
    get_task("gsm8k", path=f"{gsm8k.parent.name}/{gsm8k.name}", shots=0)
    get_task("gsm8k", path="openai/gsm8k:main", shots=1, limit=1)
    monkeypatch.delenv("ROUTELAB_DATA")
    get_task("gsm8k", path="openai/gsm8k:main", shots=0)
    assert asked == [
        ((gsm8k / "test.jsonl",), {"limit": None}),
        (("openai/gsm8k:main",), {"split": "train", "limit": None}),
        (("openai/gsm8k:main",), {"split": "test", "limit": 1}),
        (("openai/gsm8k:main",), {"split": "test", "limit": None}),
    ]


def test_missing_and_foreign_data_is_named(gsm8k: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no validation split"):
        get_task("gsm8k", path=str(gsm8k), split="validation")
    with pytest.raises(EvaluationError, match="12 rows to take 13"):
        get_task("gsm8k", path=str(gsm8k), shots=13)
    (gsm8k / "test.jsonl").write_text('{"question": "a", "answer": "no mark"}\n')
    with pytest.raises(DataError, match=r"row 0 of .* is not of GSM8K"):
        get_task("gsm8k", path=str(gsm8k))
    monkeypatch.delenv("ROUTELAB_DATA", raising=False)
    with pytest.raises(DataError, match="ROUTELAB_DATA"):
        get_task("gsm8k", path="nowhere")


def test_real_gsm8k(data_root: Path) -> None:
    task = get_task("gsm8k")
    assert len(task.examples) == 1319
    assert task.examples[0]["gold"] == "18"
    assert all(float(example["gold"]) == float(example["gold"]) for example in task.examples)


def test_mini_arithmetic() -> None:
    task = get_task("mini-arithmetic", limit=20, steps=2)
    again = get_task("mini-arithmetic", limit=20, steps="2")
    assert task.sha256 == again.sha256 != get_task("mini-arithmetic", limit=20, steps="2-3").sha256
    assert len({example["id"] for example in task.examples}) == 20
    assert all(message["role"] == "user" for example in task.examples for message in example["prompt"])
    assert all(int(example["gold"]) <= 30 for example in task.examples)
    assert len(get_task("mini-arithmetic").examples) == 200


def test_mini_facts() -> None:
    task = get_task("mini-facts", limit=10)
    assert len(task.examples) == 10
    for example in task.examples:
        assert len(set(example["choices"])) == 4
        assert 0 <= example["gold"] < 4
        assert all(choice not in example["prompt"][0]["content"] for choice in example["choices"])


def test_text_loss_takes_any_chats(gsm8k: Path, tmp_path: Path) -> None:
    task = get_task("text-loss", path=str(gsm8k), limit=2)
    assert [message["role"] for message in task.examples[0]["messages"]] == ["user", "assistant"]
    rows = tmp_path / "held.jsonl"
    rows.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}))
    assert get_task("text-loss", path=str(rows), source="messages").examples[0]["messages"][1]["content"] == "b"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"distractors": "abc"}, "'distractors' must be of type int, got 'abc'"),
        ({"seed": True}, "'seed' must be of type int, got True"),
        ({"draw": [1]}, "'draw' must be of type int or str"),
        ({"split": None}, "'split' must be of type str"),
        ({"limit": 3}, "no option 'limit'"),
    ],
)
def test_options_of_the_wrong_type_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(EvaluationError, match=said):
        task_with("mini-arithmetic", 1, options)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(EvaluationError, match="did you mean 'gsm8k'"):
        get_task("gms8k")
    with pytest.raises(EvaluationError, match="did you mean 'steps'"):
        get_task("mini-arithmetic", step=2)
    with pytest.raises(EvaluationError, match="steps is a number or a range"):
        get_task("mini-arithmetic", steps="two")
    with pytest.raises(EvaluationError, match="limit 0"):
        get_task("mini-facts", limit=0)
    with pytest.raises(EvaluationError, match="no negative number of shots"):
        get_task("gsm8k", shots=-1)


def test_every_task_is_documented() -> None:
    assert all(build.__doc__ for build in TASKS.values())
