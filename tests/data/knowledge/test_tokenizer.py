"""Tokens of text as a user types it, and the tokenizer's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from routelab.data.knowledge import Knowledge, KnowledgeTokenizer, Task, Template
from routelab.errors import CheckpointError, DataError


def reads(tokenizer: KnowledgeTokenizer, text: str) -> list[str]:
    return [tokenizer.symbols[index] for index in tokenizer.encode(text)]


@pytest.fixture
def tokenizer() -> KnowledgeTokenizer:
    templates = tuple(map(Template.parse, ("[X] is in [Y].", "[X] is a [Y]-born")))
    pairs = (("York", "New York"), ("New York", "York"), ("the art", "art"), ("Who? Me", "is"), ("[LB] 1", "S. Ann"))
    return KnowledgeTokenizer(Knowledge((Task("t", templates, pairs),)))


def test_ids_are_marks_then_words_then_names(paper: Knowledge) -> None:
    tokenizer = KnowledgeTokenizer(paper)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)
    assert tokenizer.symbols == ("<s>", "</s>", *paper.vocabulary)
    assert tokenizer.vocab_size == 2 + len(paper.vocabulary)


def test_a_sentence_has_both_ends_and_a_prefix_only_the_first(paper: Knowledge) -> None:
    tokenizer = KnowledgeTokenizer(paper)
    whole = tokenizer.encode_sentence(paper.sentences()[0].words)
    assert (whole[0], whole[-1]) == (0, 1)
    assert tokenizer.encode("Paris is in France.") == whole[:-1]
    assert tokenizer.encode("") == [0]
    assert tokenizer.decode(whole) == "Paris is in France."


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("York is in New York.", ["York", "is", "in", "New York", "."]),
        ("  New York\tis  in York .", ["New York", "is", "in", "York", "."]),
        ("New York is a York-born", ["New York", "is", "a", "York", "-born"]),
        ("Who? Me is in", ["Who? Me", "is", "in"]),
        ("[is] is in", ["[is]", "is", "in"]),
        ("[New York] is in [York]", ["New York", "is", "in", "York"]),
        ("[[LB]] 1] is in", ["[LB] 1", "is", "in"]),
        ("S. Ann.", ["S. Ann", "."]),
    ],
)
def test_text(tokenizer: KnowledgeTokenizer, text: str, symbols: list[str]) -> None:
    assert reads(tokenizer, text) == ["<s>", *symbols]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yorck is in", "'Yorck' in 'Yorck is in' begins no template word and no name; did you mean 'York'"),
        ("Yorks is in", "'Yorks' .*did you mean 'York'"),
        ("York is in [Nw York]", r"'\[Nw York\]' asks for a name that is not there; did you mean 'New York'"),
        ("York is in 2029", "'2029' in 'York is in 2029' begins no template word and no name$"),
    ],
)
def test_unknown_words(tokenizer: KnowledgeTokenizer, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        tokenizer.encode(text)


def test_a_symbol_of_other_knowledge_is_refused(paper: Knowledge) -> None:
    with pytest.raises(DataError, match="'Pariss' is no symbol of this knowledge; did you mean 'Paris'"):
        KnowledgeTokenizer(paper).encode_sentence(("Pariss", "is", "in", "France", "."))


def test_brackets_appear_only_where_they_are_needed(tokenizer: KnowledgeTokenizer) -> None:
    plain = tokenizer.encode("New York is in York.")
    assert tokenizer.decode(plain) == "New York is in York."
    forced = tokenizer.encode("[is] is a [York]-born")
    assert tokenizer.decode(forced) == "[is] is a York-born"


def test_the_file_reads_back(tokenizer: KnowledgeTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    loaded = KnowledgeTokenizer.load(tmp_path)
    assert loaded.symbols == tokenizer.symbols
    assert loaded.encode("[is] is in York.") == tokenizer.encode("[is] is in York.")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"words": []}',
        '{"words": ["a"], "names": ["a"]}',
        '{"words": "ab", "names": []}',
        '{"words": [1], "names": []}',
    ],
)
def test_a_damaged_file_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "knowledge_tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"knowledge_tokenizer\.json"):
        KnowledgeTokenizer.load(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing"):
        KnowledgeTokenizer.load(tmp_path)
