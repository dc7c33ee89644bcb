"""Rows of known data sets as chats: the one format that training and evaluation read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from routelab.errors import DataError, closest

Row = dict[str, Any]
Chat = list[dict[str, str]]

ROLES = ("system", "user", "assistant")
_CALCULATOR = re.compile(r"<<[^<>]*>>")


def strip_calculator(answer: str) -> str:
    """Remove GSM8K's calculator annotations: ``"48/2 = <<48/2=24>>24"`` becomes ``"48/2 = 24"``."""
    return _CALCULATOR.sub("", answer)


def to_messages(rows: Sequence[Row], source: str) -> list[Row]:
    """Turn ``rows`` of a known ``source`` into ``{"id", "messages": [{"role", "content"}, …]}``, in order.

    Sources: ``arithmetic``, ``facts``, ``paragraphs`` (mini-world), ``gsm8k``, ``alpaca``, and ``messages`` for rows
    that already are chats. A row without an ``id`` gets ``"<source>-<index>"``. A ``task`` that a chat has stays.

    Raises:
        DataError: unknown source, or a row that lacks a field (named, with the row's index).
    """
    if source not in SOURCES:
        raise DataError(f"no chat source is called {source!r}{closest(source, SOURCES)}")
    convert = SOURCES[source]
    chats = []
    for index, row in enumerate(rows):
        try:
            messages = convert(row)
        except KeyError as error:
            raise DataError(f"row {index} of {source} lacks {error}; it has {', '.join(map(str, row))}") from error
        except DataError as error:
            raise DataError(f"row {index} of {source}: {error}") from error
        chat = {"id": str(row.get("id", f"{source}-{index}")), "messages": messages}
        chats.append(chat | ({"task": row["task"]} if source == "messages" and "task" in row else {}))
    return chats


def _turns(user: str, assistant: str) -> Chat:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def _question(row: Row) -> Chat:
    return _turns(row["question"], row["answer"])


def _paragraph(row: Row) -> Chat:
    return _turns(f"{row['context']}\n{row['question']}", row["answer"])


def _gsm8k(row: Row) -> Chat:
    return _turns(row["question"], strip_calculator(row["answer"]))


def _alpaca(row: Row) -> Chat:
    extra = row.get("input")
    return _turns(f"{row['instruction']}\n{extra}" if extra else row["instruction"], row["output"])


def _messages(row: Row) -> Chat:
    messages = row["messages"]
    if not isinstance(messages, list) or not messages:
        raise DataError("messages must be a list of at least one message")
    for message in messages:
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            raise DataError(f"a message has a role and a content, got {message!r}")
        if message["role"] not in ROLES:
            raise DataError(f"no role is called {message['role']!r}{closest(message['role'], ROLES)}")
        if not isinstance(message["content"], str):
            raise DataError(f"the content of a message is text, not {type(message['content']).__name__}")
    return [{"role": m["role"], "content": m["content"]} for m in messages]


SOURCES: dict[str, Callable[[Row], Chat]] = {
    "alpaca": _alpaca,
    "arithmetic": _question,
    "facts": _question,
    "gsm8k": _gsm8k,
    "messages": _messages,
    "paragraphs": _paragraph,
}
