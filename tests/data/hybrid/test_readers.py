from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routelab.data import MiniWorld, load_rows
from routelab.data.hybrid import read_targets
from routelab.data.hybrid.targets import split_thought, split_word
from routelab.errors import DataError


@pytest.mark.parametrize(
    ("reply", "thought", "answer"),
    [
        ("<think>\nI add.\n</think>\n\n4", "I add.", "4"),
        ("I add.\n</think>\n4", "I add.", "4"),
        ("<think>\n\n</think>\n\n4", "", "4"),
        (" 4 ", "", "4"),
        ("<think>I add and add", "I add and add", ""),
    ],
)
def test_thoughts_are_told_from_answers(reply: str, thought: str, answer: str) -> None:
    assert split_thought(reply) == (thought, answer)


@pytest.mark.parametrize(
    ("question", "rest", "mode"),
    [
        ("2 + 2? /think", "2 + 2?", "think"),
        ("2 + 2?\n/no_think ", "2 + 2?", "no_think"),
        ("what does </think", "what does </think", None),
        ("open src/no_think", "open src/no_think", None),
        ("/think then 2 + 2?", "/think then 2 + 2?", None),
    ],
)
def test_control_words_at_the_end_of_a_question(question: str, rest: str, mode: str | None) -> None:
    assert split_word(question) == (rest, mode)


def test_chats_in_both_forms_are_the_same_targets() -> None:
    said = [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello"), ("user", "2+2? /think")]
    messages = [*said, ("assistant", "<think>\nI add.\n</think>\n\n4")]
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    as_messages = {"id": "a", "messages": [{"role": r, "content": c} for r, c in messages], "right": 4}
    as_sharegpt = {"id": "a", "conversations": [{"from": names[r], "value": c} for r, c in messages], "right": 4}
    (first,) = read_targets([as_messages], "messages", gold="right")
    (second,) = read_targets([as_sharegpt], "sharegpt", gold="right")
    assert first == second
    assert (first.id, first.mode, first.thought, first.answer, first.gold) == ("a/think", "think", "I add.", "4", "4")
    assert first.asked == "think"
    assert [turn["content"] for turn in first.prompt] == ["Be kind.", "Hi", "Hello", "2+2?"]
    beside = {"system": "Be kind.", "conversations": as_sharegpt["conversations"][1:]}
    assert read_targets([beside], "sharegpt")[0].prompt == first.prompt


def test_an_empty_think_block_is_a_direct_answer() -> None:
    row = {"conversations": [{"from": "user", "value": "2+2?"}, {"from": "gpt", "value": "<think>\n\n</think>\n\n4"}]}
    (target,) = read_targets([row], "sharegpt")
    assert (target.id, target.mode, target.reply) == ("sharegpt-0/no_think", "no_think", "4")


def test_columns_with_and_without_tags() -> None:
    rows = [
        {"q": "2+2?", "trace": "<think>I add.</think>", "final": "4", "short": "4!", "right": 4},
        {"q": "2+2?", "trace": "", "final": "", "short": "4!", "right": None},
    ]
    targets = read_targets(
        rows, "columns", question="q", think="trace", answer="final", direct="short", gold="right", domain="sums"
    )
    assert [target.id for target in targets] == ["columns-0/think", "columns-0/no_think", "columns-1/no_think"]
    assert targets[0].reply == "<think>\nI add.\n</think>\n\n4"
    assert [target.gold for target in targets] == ["4", "4", None]
    assert {target.domain for target in targets} == {"sums"}
    assert len({target.key for target in targets}) == 1


@pytest.mark.parametrize(("direct", "short"), [("answer", "#### 12"), ("line", "6*2 = 12\n#### 12")])
def test_gsm8k(direct: str, short: str) -> None:
    row = {"question": "q", "answer": "3*2 = <<3*2=6>>6\n6*2 = <<6*2=12>>12\n#### 12"}
    think, no_think = read_targets([row], "gsm8k", direct=direct)
    assert think.reply == "<think>\n3*2 = 6\n6*2 = 12\n</think>\n\n#### 12"
    assert no_think.reply == short
    assert think.gold == no_think.gold == "12"


def test_mini_arithmetic() -> None:
    row = MiniWorld().arithmetic("train", 1, steps=2)[0]
    think, no_think = read_targets([row], "mini-arithmetic")
    assert think.id == f"{row['id']}/think"
    assert think.answer == no_think.reply == f"#### {row['gold']}"
    assert think.key == no_think.key


@pytest.mark.parametrize(
    ("rows", "source", "options", "said"),
    [
        ([], "shargpt", {}, "did you mean 'sharegpt'"),
        ([], "gsm8k", {"direkt": "line"}, "did you mean 'direct'"),
        ([], "gsm8k", {"name": "x"}, "has no option 'name'"),
        ([{"question": "q"}], "gsm8k", {}, "row 0 of gsm8k lacks 'answer'; it has question"),
        ([{"question": "q", "answer": "42"}], "gsm8k", {}, "row 0 of gsm8k: the answer has no worked solution"),
        ([{"question": "q", "answer": "1\n#### 1"}], "gsm8k", {"direct": "none"}, "'answer' or 'line', not 'none'"),
        ([{"messages": "hi"}], "messages", {}, "'messages' is a list of turns, not str"),
        ([{"messages": [{"role": "user", "content": "hi"}]}], "messages", {}, "must end in a question"),
        ([{"messages": [{"role": "tool", "content": "hi"}]}], "messages", {}, "no role is called 'tool'"),
        ([{"conversations": [{"from": "gtp", "value": "hi"}]}], "sharegpt", {}, "did you mean 'gpt'"),
        ([{"question": 3, "think": "", "answer": ""}], "columns", {}, "'question' is text, not int"),
    ],
)
def test_bad_rows_are_named(rows: list[Any], source: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_targets(rows, source, **options)


def test_real_files(data_root: Path) -> None:
    paired = read_targets(load_rows(data_root / "reasoning/paired_think_direct.jsonl.gz"), "paired")
    assert len(paired) == 1000
    assert sum(not target.answer for target in paired) == 94
    assert len({target.key for target in paired}) == 100
    traces = read_targets(load_rows(data_root / "reasoning/r1_mmlu.jsonl.gz"), "r1-mmlu")
    assert {target.mode for target in traces} == {"think"}
    assert len({target.domain for target in traces}) == 4
    assert all(target.gold in target.choices for target in traces)
