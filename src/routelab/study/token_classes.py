"""What kind of token a token is, from its text alone: the same for every tokenizer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from routelab.errors import EvaluationError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Tried in order on the token's text without the white space around it; the first that matches it whole wins.
_PATTERNS = (
    ("number", re.compile(r"[\d.,]*\d[\d.,]*")),
    ("operator", re.compile(r"[-+*/=<>^%$€£×÷−≤≥]+")),
    ("punctuation", re.compile(r"[^\w\s]+")),
    ("word", re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")),
)
CLASSES = ("number", "operator", "punctuation", "word", "word part", "space", "special", "other")


def token_class(text: str, *, special: bool = False) -> str:
    """Return the class of a token's text. ``word`` begins with a space, ``word part`` does not: it goes on with a word,
    or begins a line."""
    if special:
        return "special"
    bare = text.strip()
    if not bare:
        return "space"
    name = next((name for name, pattern in _PATTERNS if pattern.fullmatch(bare)), "other")
    return "word part" if name == "word" and not text[0].isspace() else name


def vocabulary_classes(tokenizer: PreTrainedTokenizerBase, size: int) -> list[int]:
    """Return the place in :data:`CLASSES` of every id below ``size``.

    Raises:
        EvaluationError: an empty vocabulary.
    """
    if size < 1:
        raise EvaluationError(f"a vocabulary of {size} tokens has no classes")
    special = set(tokenizer.all_special_ids)
    texts = tokenizer.batch_decode([[i] for i in range(size)], clean_up_tokenization_spaces=False)
    return [CLASSES.index(token_class(text, special=i in special)) for i, text in enumerate(texts)]
