"""Prompts to token ids: chats through the tokenizer's template, texts as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from routelab.errors import EvaluationError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Prompt = str | Sequence[Mapping[str, str]]


def render(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> str:
    """Return the text of ``prompt``: messages by the chat template with the generation prompt, a string unchanged.

    Raises:
        EvaluationError: the tokenizer has no chat template, or the template refuses the messages.
    """
    if isinstance(prompt, str):
        return prompt
    if not tokenizer.chat_template:
        raise EvaluationError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template for a prompt of messages; "
            "set tokenizer.chat_template, or give prompts as text"
        )
    try:
        return str(tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template may raise anything it likes
        raise EvaluationError(f"the chat template cannot render {list(prompt)!r}: {error}") from error


def encode(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> list[int]:
    """Return the token ids of ``prompt``. A rendered chat gets no special tokens beside those of its template.

    Raises:
        EvaluationError: as :func:`render`, and for a prompt without tokens.
    """
    ids = tokenizer(render(tokenizer, prompt), add_special_tokens=isinstance(prompt, str))["input_ids"]
    if not ids:
        raise EvaluationError(f"the prompt {prompt!r} has no tokens")
    return list(ids)


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids that end a text: those of the model's generation config, and the tokenizer's end of sequence."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(int(i) for i in [*ids, tokenizer.eos_token_id] if i is not None)
