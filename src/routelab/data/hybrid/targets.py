"""What a hybrid corpus is made of: a prompt, and one answer to it that thinks or does not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Mode = Literal["no_think", "think"]
Message = Mapping[str, str]

MODES: tuple[Mode, ...] = ("no_think", "think")
#: The control words that readers know at the end of a user turn.
WORDS: Mapping[Mode, str] = MappingProxyType({"no_think": "/no_think", "think": "/think"})

OPEN, CLOSE = "<think>", "</think>"
_ASKED = re.compile(r"\s*(?<![\w/<])/(?P<mode>no_think|think)\s*$")


@dataclass(frozen=True)
class Target:
    """One answer to learn.

    Attributes:
        prompt: messages up to and including the user's question, which carries no control word.
        mode: ``"think"`` where ``thought`` says something.
        answer: what stands outside the thought.
        gold: the right answer, if known.
        choices: what ``gold``, then one of them, was chosen from.
        domain: what length limits go by.
        asked: the mode that the control word of the source asked for, where it had one.
    """

    id: str
    prompt: tuple[Message, ...]
    mode: Mode
    answer: str
    thought: str = ""
    gold: str | None = None
    choices: tuple[str, ...] = ()
    domain: str = "general"
    asked: Mode | None = None

    @property
    def question(self) -> str:
        """What the user asks last."""
        return self.prompt[-1]["content"]

    @property
    def key(self) -> str:
        """A name for the prompt: SHA-256 of its turns, case and white space folded."""
        turns = (f"{turn['role']}: {' '.join(turn['content'].split())}" for turn in self.prompt)
        return hashlib.sha256("\n".join(turns).casefold().encode()).hexdigest()

    @property
    def reply(self) -> str:
        """The assistant's turn: ``<think>\\n…\\n</think>\\n\\nanswer``, or the answer alone."""
        return f"{OPEN}\n{self.thought}\n{CLOSE}\n\n{self.answer}" if self.mode == "think" else self.answer


def split_thought(reply: str) -> tuple[str, str]:
    """Return thought and answer of a reply, without white space around them.

    The opening tag may be missing, as where a template has written it already. An empty thought is no thought; a reply
    that never closes its thought has no answer.
    """
    thought, closed, answer = reply.partition(CLOSE)
    if not closed and OPEN not in reply:
        return "", reply.strip()
    return thought.strip().removeprefix(OPEN).strip(), answer.strip()


def split_word(question: str) -> tuple[str, Mode | None]:
    """Return a question without the control word at its end, and the mode that the word asks for."""
    match = _ASKED.search(question)
    if not match:
        return question, None
    return question[: match.start()], "think" if match["mode"] == "think" else "no_think"
