"""The rule of the control words, against a slow oracle and the cases of the issue."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelab.errors import ConfigError, ModeError
from routelab.hosts.chat_spans import Headers
from routelab.methods.pathlock.config import PathLockConfig
from routelab.methods.pathlock.control import ControlRule

USER, ASSISTANT = "<|im_start|>user", "<|im_start|>assistant"
CHATML = Headers(ASSISTANT, (USER, "<|im_start|>system"))
WORD_CHARACTERS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
NO_THINK, THINK = 0, 1


def oracle(text: str, words: tuple[str, str]) -> list[tuple[int, int]]:
    """Return ``(start, mode)`` of every word that stands alone, character by character."""
    found, at = [], 0
    while at < len(text):
        for word in sorted(words, key=len, reverse=True):
            before = text[at - 1] if at else ""
            rest = text[at + len(word) :]
            if (
                text[at : at + len(word)] == word
                and before not in WORD_CHARACTERS | {"/", "<"}
                and rest[:1] not in WORD_CHARACTERS | {"/", "-"}
                and not (rest[:1] == "." and rest[1:2] in WORD_CHARACTERS)
            ):
                found.append((at, words.index(word)))
                at += len(word)
                break
        else:
            at += 1
    return found


PIECES = [
    "/think",
    "/no_think",
    "/",
    "<",
    ">",
    ".",
    "-",
    "_",
    " ",
    "\n",
    "a",
    "Z",
    "9",
    "é",
    "答",
    "think",
    "no_",
    "</think>",
]


@settings(max_examples=3000, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_words_against_the_oracle(text: str) -> None:
    decision = ControlRule(PathLockConfig(), None).decide(text)
    expected = oracle(text, PathLockConfig().words)
    assert [(word.start, word.mode) for word in decision.words] == expected
    assert decision.mode == (expected[-1][1] if expected else None)


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(st.sampled_from(["ab", "a", "b", "/ab", "思考", "不思考", " ", "."]), max_size=10).map("".join),
    st.sampled_from([("ab", "a"), ("思考", "不思考"), ("/ab", "ab"), ("/fast", "/deep")]),
)
def test_any_words_against_the_oracle(text: str, words: tuple[str, str]) -> None:
    rule = ControlRule(PathLockConfig(no_think=words[0], think=words[1]), None)
    assert [(word.start, word.mode) for word in rule.decide(text).words] == oracle(text, words)


TURNS = ["hi", "/think", "/no_think", "src/no_think/a.py", "</think> text", "say /think."]


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.sampled_from(TURNS)), min_size=1, max_size=6))
def test_only_what_the_model_did_not_write_counts(turns: list[tuple[str, str]]) -> None:
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    said = [mode for role, content in turns if role == "user" for _, mode in oracle(content, PathLockConfig().words)]
    assert ControlRule(PathLockConfig(), CHATML).decide(text).mode == (said[-1] if said else None)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("What does /think mean? /no_think", NO_THINK),
        ("/no_think hi /think", THINK),
        ("`</think>` text /no_think", NO_THINK),
        ("/think_hard is not a word /no_think", NO_THINK),
        ("Open src/no_think/a.py", None),
        ("请直接回答/no_think", NO_THINK),
        ("see /think.py", None),
        ("Please /think.", THINK),
        ("/think-aloud", None),
        ("(/no_think)", NO_THINK),
        ("/think/no_think", None),
        ("", None),
    ],
)
def test_cases(text: str, mode: int | None) -> None:
    assert ControlRule(PathLockConfig(), None).decide(text).mode == mode


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


PROMPT = f"{ASSISTANT}\n"


def test_turns() -> None:
    rule = ControlRule(PathLockConfig(), CHATML)
    changed = turn("user", "a /think") + turn("assistant", "x") + turn("user", "b /no_think") + PROMPT
    assert rule.decide(changed).mode == NO_THINK
    quoted = turn("user", "a /no_think") + turn("assistant", "use /think") + turn("user", "b") + PROMPT
    assert rule.decide(quoted).mode == NO_THINK
    assert ControlRule(PathLockConfig(scan="paper"), CHATML).decide(quoted).mode == THINK
    response = turn("user", "a /no_think") + PROMPT + "I could /think here"
    assert rule.decide(response).mode == NO_THINK
    assert ControlRule(PathLockConfig(scan="paper"), CHATML).decide(response).mode == NO_THINK
    assert rule.decide(turn("system", "/no_think") + turn("user", "a") + PROMPT).mode == NO_THINK
    cut = "end of a question /think<|im_end|>\n" + PROMPT
    assert rule.decide(cut).mode == THINK
    assert rule.decide("an answer's end /think<|im_end|>\n" + turn("user", "a")).mode is None


def test_decision_says_why() -> None:
    text = turn("user", "/think?") + turn("assistant", "/think") + turn("user", "b /no_think") + PROMPT
    decision = ControlRule(PathLockConfig(), CHATML).decide(text)
    assert [(text[word.start : word.end], word.counts) for word in decision.words] == [
        ("/think", True),
        ("/think", False),
        ("/no_think", True),
    ]
    assert decision.winner == decision.words[-1]
    assert decision.header == text.index(PROMPT, text.index("b /no")) + len(ASSISTANT)


BLOCK = "<think>\n\n</think>\n\n"


def test_empty_think_block() -> None:
    rule = ControlRule(PathLockConfig(), CHATML)
    question = turn("user", "a") + PROMPT
    assert rule.decide(question + BLOCK).mode == NO_THINK
    assert rule.decide(question + BLOCK + "the answer").mode == NO_THINK
    assert rule.decide(question + "<think>\nhm\n</think>\n\n").mode is None
    earlier = turn("user", "a /think") + turn("assistant", "x") + question
    assert rule.decide(earlier + BLOCK).mode == NO_THINK
    assert rule.decide(earlier).mode == THINK
    with pytest.raises(ModeError, match="both modes"):
        rule.decide(turn("user", "a /think") + PROMPT + BLOCK)
    # A thinking model may write an empty block itself; that changes nothing.
    assert rule.decide(turn("user", "a /think") + PROMPT + BLOCK + "the answer").mode == THINK
    assert rule.decide(turn("user", "a /no_think") + PROMPT + BLOCK).mode == NO_THINK
    assert rule.decide(turn("assistant", BLOCK) + turn("user", "a /think") + PROMPT).mode == THINK


@pytest.mark.parametrize(
    "values",
    [
        {"think": ""},
        {"think": "a b"},
        {"think": "/no_think"},
        {"strict": 1},
        {"default_mode": "thinking"},
        {"scan": "papers"},
        {"train": "mlp"},
        {"headers": ["a"]},
        {"headers": "ab"},
        {"headers": ["a", "a"]},
    ],
)
def test_bad_configurations(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        PathLockConfig(**values)  # type: ignore[arg-type]
