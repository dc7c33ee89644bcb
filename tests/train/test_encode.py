from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from routelab.data.chat import to_messages
from routelab.data.sources import load_rows
from routelab.errors import DataError, TrainingError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.train import TrainConfig, encode_rows
from routelab.train.encode import IGNORED, ChatEncoder

MARKED = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}"
    "{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
WITH_SYSTEM = "{% if messages[0].role != 'system' %}<|start|>system\nBe kind.<|end|>\n{% endif %}" + UNMARKED
NO_PROMPT = UNMARKED.replace("{% if add_generation_prompt %}<|start|>assistant\n{% endif %}", "")
FORGETFUL = UNMARKED.replace("{{ m.content }}", "{% if loop.last or m.role == 'user' %}{{ m.content }}{% endif %}", 1)

TWO_TURNS = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "  1 "},
    {"role": "user", "content": "assistant\ntwo?"},
    {"role": "assistant", "content": "2\n\n3"},
]
Make = Callable[[str], PreTrainedTokenizerFast]


def seen(tokenizer: PreTrainedTokenizerFast, messages: list[dict[str, str]], **options: Any) -> str:
    document = ChatEncoder(tokenizer, assistant_only=options.get("assistant_only", True))(messages)
    return "".join(tokenizer.convert_ids_to_tokens(document.labels[document.labels != IGNORED].tolist()))


@pytest.mark.parametrize("template", [MARKED, UNMARKED, WITH_SYSTEM])
def test_loss_sees_every_reply_with_its_end_and_nothing_else(template: str, make_tokenizer: Make) -> None:
    assert seen(make_tokenizer(template), TWO_TURNS) == "  1 <|end|>2\n\n3<|end|>"


def test_marks_and_prefixes_give_the_same_document(make_tokenizer: Make) -> None:
    marked, prefixes = (ChatEncoder(make_tokenizer(t), assistant_only=True)(TWO_TURNS) for t in (MARKED, UNMARKED))
    np.testing.assert_array_equal(marked.input_ids, prefixes.input_ids)
    np.testing.assert_array_equal(marked.labels, prefixes.labels)


def test_template_without_generation_prompt_labels_the_role_too(make_tokenizer: Make) -> None:
    assert seen(make_tokenizer(NO_PROMPT), TWO_TURNS[:2]) == "<|start|>assistant\n  1 <|end|>"


def test_every_token_but_the_first_without_assistant_only(make_tokenizer: Make) -> None:
    text = seen(make_tokenizer(MARKED), TWO_TURNS[:2], assistant_only=False)
    assert text == "user\none?<|end|>\n<|start|>assistant\n  1 <|end|>\n"


def test_template_that_rewrites_earlier_turns_is_refused_by_name(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(FORGETFUL)
    assert seen(tokenizer, TWO_TURNS[:2]) == "  1 <|end|>"
    with pytest.raises(TrainingError, match=r"'tiny-chars' renders turn 1 differently"):
        seen(tokenizer, TWO_TURNS)


def test_template_that_cannot_render_names_the_row(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer("{{ raise_exception('only users') }}")
    with pytest.raises(DataError, match=r"row 'x7'.*only users"):
        encode_rows(tokenizer, [{"id": "x7", "messages": TWO_TURNS}], TrainConfig(steps=1))


def test_no_template_and_no_messages(make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(MARKED)
    with pytest.raises(DataError, match=r"row 1 has no 'messages'; it has \['text'\]"):
        encode_rows(tokenizer, [{"messages": TWO_TURNS}, {"text": "x"}], TrainConfig(steps=1))
    with pytest.raises(DataError, match="no rows"):
        encode_rows(tokenizer, [], TrainConfig(steps=1))
    tokenizer.chat_template = None
    with pytest.raises(TrainingError, match="no chat template"):
        encode_rows(tokenizer, [{"messages": TWO_TURNS}], TrainConfig(steps=1))


def test_zero_labelled_tokens_are_refused_and_counted(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(TrainingError, match=r"no labelled token is left.* of 2 rows 0 are longer .* and 2 have no"):
        encode_rows(tokenizer, [{"messages": TWO_TURNS[:1]}] * 2, TrainConfig(steps=1))


def test_gsm8k_with_the_tokenizer_of_the_minis(data_root: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    rows = to_messages(load_rows(data_root / "gsm8k" / "train.jsonl.gz", limit=40), "gsm8k")
    encoded = encode_rows(tokenizer, rows, TrainConfig(steps=1, max_length=2048))
    assert encoded.counts == {"rows": 40, "too_long": 0, "no_labels": 0, "cut": 0}
    for row, document in zip(rows, encoded.documents, strict=True):
        reply = tokenizer.decode(document.labels[document.labels != IGNORED].tolist())
        assert reply == row["messages"][-1]["content"] + "<|im_end|>"


def test_overlong_rows(tokenizer: PreTrainedTokenizerFast) -> None:
    def row(answer: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]}

    rows = [row("x"), row("x" * 40), {"messages": [{"role": "user", "content": "q" * 40}, *TWO_TURNS[1:2]]}]
    lengths = [len(document) for document in encode_rows(tokenizer, rows, TrainConfig(steps=1)).documents]
    assert (lengths[0] < 30, lengths[1] > 50, lengths[2] > 50) == (True, True, True)

    dropped = encode_rows(tokenizer, rows, TrainConfig(steps=1, max_length=30))
    assert dropped.counts == {"rows": 3, "too_long": 2, "no_labels": 0, "cut": 0}
    assert [len(document) for document in dropped.documents] == [lengths[0]]

    cut = encode_rows(tokenizer, rows, TrainConfig(steps=1, max_length=30, overlong="cut"))
    assert cut.counts == {"rows": 3, "too_long": 0, "no_labels": 1, "cut": 2}
    assert [len(document) for document in cut.documents] == [lengths[0], 30]

    with pytest.raises(TrainingError, match=f"row 1 has {lengths[1]} tokens, max_length is 30"):
        encode_rows(tokenizer, rows, TrainConfig(steps=1, max_length=30, overlong="refuse"))
