"""Chat templates that answer ``enable_thinking``, and chats with a control word appended."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from routelab.errors import ConfigError, ModeError
from routelab.methods.pathlock.config import MODES, PathLockConfig
from routelab.methods.pathlock.control import ControlRule

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "{#- routelab: enable_thinking -#}"

# The rule of `control`, in Jinja: `stands_alone(text, word)` is empty where the word does not stand alone in the text.
_SWITCH = (
    _MARK
    + """
{%- macro stands_alone(text, word) -%}
{%- set inside = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_' -%}
{%- set parts = text.split(word) -%}
{%- for part in parts[1:] -%}
{%- set before = parts[loop.index0][-1:] or (word[-1:] if loop.index0 else '') -%}
{%- set after = part[:1] or (word[:1] if not loop.last else '') -%}
{%- set then = part[1:2] or (word[:1] if not loop.last else '') -%}
{%- if not (before and before in inside ~ '/<') and not (after and after in inside ~ '/-')
    and not (after == '.' and then and then in inside) -%}x{%- endif -%}
{%- endfor -%}
{%- endmacro -%}
{%- if enable_thinking is defined and enable_thinking is not none -%}
{%- set mode_word = @think@ if enable_thinking else @no_think@ -%}
{%- set other_word = @no_think@ if enable_thinking else @think@ -%}
{%- set turns = namespace(last=-1, messages=[]) -%}
{%- for message in messages -%}
{%- if message['role'] == 'user' -%}{%- set turns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if loop.index0 == turns.last -%}
{%- if message['content'] is not string -%}
{{ raise_exception('enable_thinking needs a last user turn of plain text') }}
{%- endif -%}
{%- if stands_alone(message['content'], other_word) -%}
{{ raise_exception('enable_thinking=' ~ enable_thinking ~ ' and the word ' ~ other_word
    ~ ' in the last user turn ask for both modes; leave one of them out') }}
{%- endif -%}
{%- if not stands_alone(message['content'], mode_word) -%}
{%- set message = dict(message, content=message['content'] ~ ' ' ~ mode_word) -%}
{%- endif -%}
{%- endif -%}
{%- set turns.messages = turns.messages + [message] -%}
{%- endfor -%}
{%- set messages = turns.messages -%}
{%- endif -%}
"""
)


def switchable(tokenizer: PreTrainedTokenizerBase, config: PathLockConfig) -> PreTrainedTokenizerBase:
    """Return a copy of a tokenizer whose chat template maps ``enable_thinking`` to the control words.

    ``apply_chat_template(messages, enable_thinking=True)`` appends the word of the mode to the last user turn, unless
    that turn holds it already, and then renders as before; ``enable_thinking`` reaches the host's own template too. A
    contrary word in that turn is an error of the template. Without ``enable_thinking`` nothing changes.
    """
    if not tokenizer.chat_template:
        return tokenizer
    adapted: PreTrainedTokenizerBase = copy.deepcopy(tokenizer)
    template = tokenizer.chat_template
    if isinstance(template, dict):
        adapted.chat_template = {name: _switched(text, config) for name, text in template.items()}
    else:
        adapted.chat_template = _switched(template, config)
    return adapted


def _switched(template: str, config: PathLockConfig) -> str:
    if template.startswith(_MARK):
        return template
    switch = _SWITCH
    for mode, word in zip(MODES, config.words, strict=True):
        switch = switch.replace(f"@{mode}@", json.dumps(word, ensure_ascii=False))
    return switch + template


def with_mode(
    messages: Sequence[Mapping[str, str]], mode: str, config: PathLockConfig | None = None
) -> list[dict[str, str]]:
    """Return a chat whose last user turn asks for ``mode``, ``"think"`` or ``"no_think"``.

    Raises:
        ConfigError: another mode, or no user turn.
        ModeError: that turn asks for the other mode already.
    """
    config = config or PathLockConfig()
    if mode not in MODES:
        raise ConfigError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=None)
    if last is None:
        raise ConfigError("the chat has no user turn to append a control word to")
    turn = dict(messages[last])
    found = {word.mode for word in ControlRule(config, None).decide(turn["content"]).words}
    wanted = MODES.index(mode)
    if 1 - wanted in found:
        raise ModeError(
            f"the last user turn says {config.words[1 - wanted]!r}, and mode {mode!r} was asked for; leave one of them "
            "out"
        )
    if wanted not in found:
        turn["content"] = f"{turn['content']} {config.words[wanted]}"
    return [*map(dict, messages[:last]), turn, *map(dict, messages[last + 1 :])]
