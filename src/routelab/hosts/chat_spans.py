"""Which part of a rendered chat was written by whom, found from the tokenizer's own chat template.

The template is rendered once with made-up words as contents. What it puts between them are the headers of the roles:
``<|im_start|>assistant`` (ChatML), ``<|start_header_id|>assistant<|end_header_id|>`` (Llama 3), ``[/INST]`` (Mistral).
Nothing about any family is written down here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from routelab.errors import HostError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Role = Literal["user", "assistant"]

_SYSTEM, _USER, _ASSISTANT, _NEXT = "zqsystemzq", "zquserzq", "zqassistantzq", "zqnextzq"


@dataclass(frozen=True)
class Span:
    """Characters ``start`` to ``end`` of a rendered chat. The system's text counts as the user's: neither is the
    model's."""

    start: int
    end: int
    role: Role


@dataclass(frozen=True)
class Headers:
    """The literal texts that open a turn. ``system_first``: what stands before the first header is the system's."""

    assistant: str
    others: tuple[str, ...]
    system_first: bool = False

    def spans(self, text: str) -> list[Span]:
        """Split a rendered chat into spans, in order; a text without any header is one span of the user.

        What stands before the first header is the system's where the template puts it there, or the end of a turn
        whose header was cut off: the user's if an assistant header follows, else the assistant's.
        """
        literals = sorted({self.assistant, *self.others}, key=len, reverse=True)
        marks = list(re.finditer("|".join(map(re.escape, literals)), text))
        if not marks:
            return [Span(0, len(text), "user")]
        first: Role = "user" if self.system_first or marks[0][0] == self.assistant else "assistant"
        spans = [Span(0, marks[0].start(), first)]
        for mark, following in zip(marks, [*marks[1:], None], strict=True):
            role: Role = "assistant" if mark[0] == self.assistant else "user"
            spans.append(Span(mark.end(), len(text) if following is None else following.start(), role))
        return spans


def find_headers(tokenizer: PreTrainedTokenizerBase) -> Headers | None:
    """Return the headers of a tokenizer's chat template, or None where it has no template.

    A header is the first line of what the template puts before a content, without the token that ends the turn before
    it (the EOS token, or one that ends the turns of both). The assistant's is what an answered turn and the generation
    prompt have in common, since a prompt may open a think block too.

    Raises:
        HostError: the template cannot render a chat of user, assistant, user, or puts nothing before a content, so
            that turns cannot be told apart.
    """
    if not tokenizer.chat_template:
        return None
    turns = [("user", _USER), ("assistant", _ASSISTANT), ("user", _NEXT)]
    try:
        text = _render(tokenizer, turns, add_generation_prompt=True)
        _, rest = _split(text, _USER)
        answered, rest = _split(rest, _ASSISTANT)
        between, prompt = _split(rest, _NEXT)
    except Exception as error:  # a template may raise anything it likes
        raise HostError(
            f"the chat template of {tokenizer.name_or_path!r} cannot render a chat of user, assistant, user, so its "
            f"headers cannot be found: {error}. Name them: headers=(user, assistant)"
        ) from error
    tokens = [token.content for token in tokenizer.added_tokens_decoder.values() if token.content]
    ends = {token for token in tokens if all(text.lstrip().startswith(token) for text in (answered, between))}
    ends |= {tokenizer.eos_token} - {None}
    assistant = _common(_header(answered, ends), _header(prompt, ends), tokens)
    user = _header(between, ends)
    if not assistant or not user or assistant == user:
        raise HostError(
            f"the chat template of {tokenizer.name_or_path!r} does not mark who speaks (before a question: "
            f"{between!r}, before an answer: {answered!r}). Name the headers: headers=(user, assistant)"
        )
    system, first = _system(tokenizer, user, tokens)
    return Headers(assistant, tuple(dict.fromkeys([user, *([system] if system else [])])), first)


def _system(tokenizer: PreTrainedTokenizerBase, user: str, tokens: list[str]) -> tuple[str, bool]:
    """Return the system's header, empty where it has none of its own, and whether its text comes first without one."""
    try:
        text = _render(tokenizer, [("system", _SYSTEM), ("user", _USER), ("assistant", _ASSISTANT)])
        before, _ = _split(text, _SYSTEM)
    except Exception:  # a template without a system turn says so by raising; then there is nothing to find
        return "", False
    begin = tokenizer.bos_token or ""
    rest = before.removeprefix(begin).strip()
    # The first token may itself open the turn (SmolLM2 calls <|im_start|> its BOS token).
    if begin and before.startswith(begin) and (not rest or rest.startswith((user, *tokens))):
        before = rest
    header = before.strip().split("\n")[0].strip()
    return header, not header


def _render(tokenizer: PreTrainedTokenizerBase, turns: list[tuple[str, str]], **options: Any) -> str:
    messages = [{"role": role, "content": content} for role, content in turns]
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    return text


def _split(text: str, word: str) -> tuple[str, str]:
    before, found, after = text.partition(word)
    if not found:
        raise HostError(f"it drops a message: {text!r}")
    return before, after


def _header(between: str, ends: set[str]) -> str:
    """Return the first line of the header in the text between two contents, without the end of the turn before."""
    text = between.strip()
    end = max((token for token in ends if text.startswith(token)), key=len, default="")
    rest = text.removeprefix(end).strip()
    return (rest or text).split("\n")[0].strip()


def _common(first: str, second: str, tokens: list[str]) -> str:
    """Return the added tokens and the texts between them that both begin with: a prompt may open a think block."""
    pattern = f"({'|'.join(map(re.escape, sorted(tokens, key=len, reverse=True)))})" if tokens else "(?!)"
    pieces = ([piece for piece in re.split(pattern, text) if piece.strip()] for text in (first, second))
    return "".join(a for a, _ in takewhile(lambda pair: pair[0].strip() == pair[1].strip(), zip(*pieces, strict=False)))
