"""Kinds of token."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from routelab.errors import EvaluationError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.study.token_classes import CLASSES, token_class, vocabulary_classes


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (" 12", "number"),
        ("1,000.5", "number"),
        ("=", "operator"),
        (" −", "operator"),
        ("####", "punctuation"),
        (".", "punctuation"),
        (" apple", "word"),
        ("ing", "word part"),
        (" don't", "word"),
        ("\n", "space"),
        ("", "space"),
        ("a1", "other"),
        ("�", "punctuation"),
    ],
)
def test_class(text: str, name: str) -> None:
    assert token_class(text) == name


def test_every_id_has_a_class_and_special_ones_are_special() -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    found = vocabulary_classes(tokenizer, len(tokenizer))
    assert len(found) == len(tokenizer)
    assert CLASSES[found[tokenizer.eos_token_id]] == "special"
    ids = tokenizer(" 7", add_special_tokens=False)["input_ids"]
    assert CLASSES[found[ids[-1]]] == "number"
    with pytest.raises(EvaluationError, match="0 tokens"):
        vocabulary_classes(tokenizer, 0)
