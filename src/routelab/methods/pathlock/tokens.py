"""Control words as single tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken
from torch import nn

from routelab.errors import HostError
from routelab.methods.attachment import attached
from routelab.methods.pathlock.config import PathLockConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@torch.no_grad()
def register_control_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: PathLockConfig | None = None
) -> int:
    """Register the control words as one token each, in place, and return how many were new.

    The embedding grows only where the new ids do not fit (many hosts have spare rows), never shrinks, and a tied head
    stays tied. The row of a new token, and of an untied head, starts as the mean of the rows of the pieces the word was
    written in before, so that the host reads it much as it did. Which mode a prompt names does not change: that is
    decided on the decoded text. The words are no special tokens, so they stay in texts decoded without those.

    Raises:
        HostError: a method is attached already; its parameters would be left behind.
    """
    if attached(model):
        raise HostError("register control tokens before attaching: the embedding may have to be replaced")
    words = (config or PathLockConfig()).words
    pieces = {word: tokenizer(word, add_special_tokens=False)["input_ids"] for word in words}
    new = [word for word in words if len(pieces[word]) > 1 or pieces[word] == [tokenizer.unk_token_id]]
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in new])
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    tables: dict[int, nn.Parameter] = {}
    for module in (model.get_input_embeddings(), model.get_output_embeddings()):
        if module is not None:
            tables[id(module.weight)] = module.weight
    for word in new:
        (token,) = tokenizer.convert_tokens_to_ids([word])
        for table in tables.values():
            table[token] = table[pieces[word]].float().mean(0).to(table.dtype)
    return len(new)
