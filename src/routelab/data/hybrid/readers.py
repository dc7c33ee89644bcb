"""Rows of known forms as targets of a hybrid corpus."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from routelab.data.chat import ROLES, strip_calculator
from routelab.data.hybrid.targets import CLOSE, OPEN, Message, Mode, Target, split_thought, split_word
from routelab.data.mini_world.styles import answer_at_once, think_aloud
from routelab.errors import DataError, closest

Row = Mapping[str, Any]
Found = Iterator[Target]

_SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


def read_targets(rows: Iterable[Row], source: str, **options: Any) -> list[Target]:
    """Read the targets that ``rows`` of a known ``source`` hold, in order; :data:`READERS` has them by name.

    Every target is called ``<row>/<mode>``, where the row's name is its ``id`` or else ``<source>-<index>``.

    Raises:
        DataError: an unknown source or option (the nearest is named), or a row that lacks a field or has another form.
    """
    if source not in READERS:
        raise DataError(f"no source of hybrid data is called {source!r}{closest(source, READERS)}")
    read = READERS[source]
    known = [name for name, p in inspect.signature(read).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise DataError(f"the source {source!r} has no option {option!r}{closest(option, known)}")
    targets: list[Target] = []
    for index, row in enumerate(rows):
        try:
            targets.extend(read(row, str(row.get("id", f"{source}-{index}")), **options))
        except KeyError as error:
            raise DataError(f"row {index} of {source} lacks {error}; it has {', '.join(map(str, row))}") from error
        except DataError as error:
            raise DataError(f"row {index} of {source}: {error}") from error
    return targets


def _columns(
    row: Row, name: str, *, question: str = "question", think: str = "think", answer: str = "answer", direct: str = "",
    gold: str = "", domain: str = "general",
) -> Found:  # fmt: skip
    """Columns of their own: a question, a thought (tags or not), the answer behind it, and perhaps a direct answer."""
    prompt = _ask(_text(row, question))
    right = None if not gold or row[gold] is None else str(row[gold])
    thought = _untagged(_text(row, think))
    if thought:
        yield Target(f"{name}/think", prompt, "think", _text(row, answer).strip(), thought, right, domain=domain)
    if direct:
        yield Target(f"{name}/no_think", prompt, "no_think", _text(row, direct).strip(), gold=right, domain=domain)


def _paired(row: Row, name: str) -> Found:
    """Thoughts and direct answers to the same question by two models of one base; there are no gold answers."""
    return _columns(row, name, answer="think_answer", direct="direct_response")


def _r1_mmlu(row: Row, name: str) -> Found:
    """Traces on test questions of MMLU, so nothing to train on where MMLU is reported; the subject is the domain."""
    choices = tuple(str(choice) for choice in row["choices"])
    listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip("ABCDEFGHIJ", choices, strict=False))
    prompt = _ask(f"{_text(row, 'question')}\n{listed}")
    gold = choices[int(row["answer"])]
    yield Target(
        f"{name}/think", prompt, "think", _text(row, "response").strip(), _text(row, "think").strip(), gold, choices,
        domain=_text(row, "subject"),
    )  # fmt: skip


def _gsm8k(row: Row, name: str, *, direct: str = "answer", domain: str = "math") -> Found:
    """The worked solution as the thought; the direct answer is ``#### N``, with ``direct="line"`` its last line too."""
    if direct not in ("answer", "line"):
        raise DataError(f"a direct answer is 'answer' or 'line', not {direct!r}")
    worked, mark, gold = strip_calculator(_text(row, "answer")).rpartition("####")
    gold = gold.strip().replace(",", "")
    if not mark or not worked.strip():
        raise DataError("the answer has no worked solution with #### and a number behind it")
    prompt, said = _ask(_text(row, "question")), f"#### {gold}"
    short = said if direct == "answer" else f"{worked.strip().splitlines()[-1]}\n{said}"
    yield Target(f"{name}/think", prompt, "think", said, worked.strip(), gold, domain=domain)
    yield Target(f"{name}/no_think", prompt, "no_think", short, gold=gold, domain=domain)


def _mini_arithmetic(row: Row, name: str, *, worked: bool = False) -> Found:
    """Word problems of the mini-world in the styles of ``data.mini_world.styles``; ``worked`` shows the equations in
    direct answers too, without thinking about them."""
    prompt, gold, said = _ask(_text(row, "question")), _text(row, "gold"), answer_at_once(row)
    direct = _text(row, "answer") if worked else said
    yield Target(f"{name}/think", prompt, "think", said, think_aloud(row), gold, domain="arithmetic")
    yield Target(f"{name}/no_think", prompt, "no_think", direct, gold=gold, domain="arithmetic")


def _messages(row: Row, name: str, *, gold: str = "", domain: str = "general") -> Found:
    """ChatML-like ``messages``; the last turn is the answer, with or without ``<think>``."""
    turns = [{"role": turn["role"], "content": _text(turn, "content")} for turn in _list(row, "messages")]
    return _chat(row, name, turns, gold, domain)


def _sharegpt(row: Row, name: str, *, gold: str = "", domain: str = "general") -> Found:
    """ShareGPT's ``conversations``, with an optional ``system`` beside them; the last turn is the answer."""
    turns = [{"role": "system", "content": _text(row, "system")}] if row.get("system") else []
    for turn in _list(row, "conversations"):
        if turn["from"] not in _SHAREGPT_ROLES:
            raise DataError(f"nobody in ShareGPT is called {turn['from']!r}{closest(turn['from'], _SHAREGPT_ROLES)}")
        turns.append({"role": _SHAREGPT_ROLES[turn["from"]], "content": _text(turn, "value")})
    return _chat(row, name, turns, gold, domain)


def _chat(row: Row, name: str, turns: Sequence[Message], gold: str, domain: str) -> Found:
    for turn in turns:
        if turn["role"] not in ROLES:
            raise DataError(f"no role is called {turn['role']!r}{closest(str(turn['role']), ROLES)}")
    if [turn["role"] for turn in turns[-2:]] != ["user", "assistant"]:
        raise DataError("a chat must end in a question of the user and an answer of the assistant")
    question, asked = split_word(turns[-2]["content"])
    thought, answer = split_thought(turns[-1]["content"])
    mode: Mode = "think" if thought else "no_think"
    right = None if not gold or row[gold] is None else str(row[gold])
    prompt = (*turns[:-2], {"role": "user", "content": question})
    yield Target(f"{name}/{mode}", prompt, mode, answer, thought, right, domain=domain, asked=asked)


def _ask(question: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": question},)


def _untagged(thought: str) -> str:
    return thought.strip().removeprefix(OPEN).removesuffix(CLOSE).strip()


def _text(row: Row, field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise DataError(f"{field!r} is text, not {type(value).__name__}")
    return value


def _list(row: Row, field: str) -> Sequence[Row]:
    value = row[field]
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, Mapping) for v in value):
        raise DataError(f"{field!r} is a list of turns, not {type(value).__name__}")
    return value


READERS: Mapping[str, Callable[..., Found]] = MappingProxyType(
    {
        "columns": _columns,
        "gsm8k": _gsm8k,
        "messages": _messages,
        "mini-arithmetic": _mini_arithmetic,
        "paired": _paired,
        "r1-mmlu": _r1_mmlu,
        "sharegpt": _sharegpt,
    }
)
