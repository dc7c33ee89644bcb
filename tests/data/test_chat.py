from __future__ import annotations

import pytest

from routelab.data import MiniWorld, load_rows, strip_calculator, to_messages
from routelab.errors import DataError


def turns(row: dict) -> list[tuple[str, str]]:
    return [(m["role"], m["content"]) for m in row["messages"]]


def test_gsm8k_loses_its_calculator_annotations_only() -> None:
    row = {"question": "How many?", "answer": "48/2 = <<48/2=24>>24 clips, 3 < 4.\n#### 24"}
    (chat,) = to_messages([row], "gsm8k")
    assert chat["id"] == "gsm8k-0"
    assert turns(chat) == [("user", "How many?"), ("assistant", "48/2 = 24 clips, 3 < 4.\n#### 24")]


def test_alpaca_joins_instruction_and_input() -> None:
    rows = [
        {"instruction": "Add.", "input": "1 2", "output": "3"},
        {"instruction": "Hi.", "input": "", "output": "Ho."},
        {"instruction": "Hi.", "output": "Ho."},
    ]
    assert [c["messages"][0]["content"] for c in to_messages(rows, "alpaca")] == ["Add.\n1 2", "Hi.", "Hi."]


def test_mini_world_rows_keep_their_ids() -> None:
    world = MiniWorld()
    for source, rows in (
        ("arithmetic", world.arithmetic("test", 3)),
        ("facts", world.facts("test", 3)),
        ("paragraphs", world.paragraphs("test", 3)),
    ):
        chats = to_messages(rows, source)
        assert [c["id"] for c in chats] == [r["id"] for r in rows]
        for chat, row in zip(chats, rows, strict=True):
            (_, asked), (_, said) = turns(chat)
            assert asked.endswith(row["question"])
            assert said == row["answer"]
    paragraph = world.paragraphs("test", 1)[0]
    assert turns(to_messages([paragraph], "paragraphs")[0])[0][1].startswith(paragraph["context"])


def test_chats_pass_through_without_other_fields() -> None:
    row = {"id": 7, "messages": [{"role": "system", "content": "s", "name": "x"}, {"role": "user", "content": "u"}]}
    assert to_messages([row], "messages") == [
        {"id": "7", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    ]


@pytest.mark.parametrize(
    ("source", "row", "hint"),
    [
        ("gsm8", {}, "did you mean 'gsm8k'"),
        ("gsm8k", {"question": "q"}, "row 0 of gsm8k lacks 'answer'; it has question"),
        ("messages", {"messages": []}, "row 0 of messages.*at least one"),
        ("messages", {"messages": [{"role": "user"}]}, "a role and a content"),
        ("messages", {"messages": [{"role": "asistant", "content": "x"}]}, "did you mean 'assistant'"),
        ("messages", {"messages": [{"role": "user", "content": None}]}, "not NoneType"),
    ],
)
def test_bad_rows_are_named(source: str, row: dict, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        to_messages([row], source)


@pytest.mark.usefixtures("data_root")
def test_real_gsm8k_keeps_no_annotation() -> None:
    for chat in to_messages(load_rows("gsm8k/train.jsonl.gz"), "gsm8k"):
        text = chat["messages"][1]["content"]
        assert "<<" not in text
        assert ">>" not in text
        assert text == strip_calculator(text)


def test_data_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, routelab.data; print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
