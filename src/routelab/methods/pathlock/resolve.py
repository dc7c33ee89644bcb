"""From prompts, as text or as token ids, to modes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from routelab.errors import ConfigError, ModeError
from routelab.hosts.chat_spans import Headers, find_headers
from routelab.methods.pathlock.config import PathLockConfig
from routelab.methods.pathlock.control import ControlRule

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger("routelab")

Ids = Sequence[int]


class ModeResolver:
    """Reads the mode of prompts with one tokenizer and one configuration.

    The decision is made on the decoded string, special tokens included, so it is the same whether a control word is
    one registered token or several pieces of text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: PathLockConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        headers = Headers(config.headers[1], (config.headers[0],)) if config.headers else find_headers(tokenizer)
        self.rule = ControlRule(config, headers)
        self._padding = {tokenizer.pad_token_id} - {None}
        self._warned = False

    def __deepcopy__(self, memo: dict[int, Any]) -> ModeResolver:
        return self  # nothing in it belongs to one model

    def texts(self, rows: Sequence[Ids]) -> list[str]:
        """Decode rows of ids, without the padding at their ends."""
        texts: list[str] = self.tokenizer.batch_decode(
            [self._trimmed(row) for row in rows], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts

    def find(self, texts: Sequence[str]) -> list[int | None]:
        """Return the mode every text names, or None where it names none.

        Raises:
            ModeError: a text names both modes (see :mod:`routelab.methods.pathlock.control`).
        """
        found = []
        for row, text in enumerate(texts):
            try:
                found.append(self.rule.decide(text).mode)
            except ModeError as error:
                raise ModeError(f"row {row} of {len(texts)}: {error}") from None
        return found

    def modes(self, texts: Sequence[str]) -> list[int]:
        """Return the mode of every text.

        Raises:
            ModeError: a text names none and the configuration is strict, or it names both.
        """
        return self.fill(texts, self.find(texts))

    def fill(self, texts: Sequence[str], found: Sequence[int | None]) -> list[int]:
        """Put the default mode where none was found, warning once; or raise ``ModeError`` if strict."""
        missing = [row for row, mode in enumerate(found) if mode is None]
        if missing and self.config.strict:
            no_think, think = self.config.words
            where = "the prompt" if self.rule.headers is None else "what the user and the system say"
            raise ModeError(
                f"row {missing[0]} of {len(texts)} names no mode: there is no {think!r} or {no_think!r} standing alone "
                f"in {where}, which ends {texts[missing[0]][-60:]!r}. Append one, use enable_thinking with the "
                "tokenizer that routelab saves, pass routing_index, or attach with PathLockConfig(strict=False)"
            )
        if missing and not self._warned:
            self._warned = True
            logger.warning(
                "prompts without a control word run as %r (PathLockConfig(strict=False)); said once",
                self.config.default_mode,
            )
        return [self.config.default_index if mode is None else mode for mode in found]

    def is_padding(self, row: Ids) -> bool:
        """Whether these ids are nothing but padding."""
        return not self._trimmed(row)

    def _trimmed(self, row: Ids) -> Ids:
        start, end = 0, len(row)
        while start < end and row[start] in self._padding:
            start += 1
        while end > start and row[end - 1] in self._padding:
            end -= 1
        return row[start:end]


def resolve_modes(
    prompts: Sequence[str] | Sequence[Ids] | Tensor,
    tokenizer: PreTrainedTokenizerBase,
    config: PathLockConfig | None = None,
    *,
    attention_mask: Tensor | None = None,
) -> Tensor:
    """Return the mode of every prompt, as an attached model decides it.

    Args:
        prompts: rendered texts, or rows of token ids (lists, or a tensor ``[B, S]`` padded on either side).
        config: defaults to ``PathLockConfig()``.
        attention_mask: ``[B, S]``; ids under a zero are not read. Without it, the padding token is left out at both
            ends of a row.

    Returns:
        int64 ``[B]`` on the CPU: 0 no_think, 1 think.

    Raises:
        ModeError: a prompt names no mode under a strict configuration, or both.
        ConfigError: ``prompts`` is one text instead of a list, or the mask has another shape.
    """
    if isinstance(prompts, str):
        raise ConfigError("prompts must be a list; for one prompt, pass [prompt]")
    resolver = ModeResolver(tokenizer, config or PathLockConfig())
    if isinstance(prompts, Tensor):
        rows = visible_rows(prompts, attention_mask)
    elif attention_mask is not None:
        raise ConfigError("an attention_mask goes with a tensor of ids")
    elif all(isinstance(prompt, str) for prompt in prompts):
        return torch.tensor(resolver.modes([str(prompt) for prompt in prompts]), dtype=torch.long)
    else:
        rows = [[int(token) for token in prompt] for prompt in prompts]
    return torch.tensor(resolver.modes(resolver.texts(rows)), dtype=torch.long)


def visible_rows(input_ids: Tensor, attention_mask: Tensor | None) -> list[list[int]]:
    """Return the ids ``[B, S]`` as lists, without those that a mask ``[B, S]`` hides.

    Raises:
        ConfigError: a mask of another shape.
    """
    if attention_mask is None:
        return list(input_ids.tolist())
    if attention_mask.shape != input_ids.shape:
        raise ConfigError(f"attention_mask has shape {tuple(attention_mask.shape)}, the ids {tuple(input_ids.shape)}")
    hidden = attention_mask.tolist()
    return [
        [token for token, seen in zip(row, mask, strict=True) if seen]
        for row, mask in zip(input_ids.tolist(), hidden, strict=True)
    ]
