"""Properties over random small languages: V, the tokenizer, the split and the file against their definitions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelab.data.knowledge import (
    BEGIN,
    END,
    OBJECT,
    SUBJECT,
    Knowledge,
    KnowledgeTokenizer,
    Sentence,
    Task,
    Template,
    read_knowledge,
    split,
    write_knowledge,
)
from routelab.errors import DataError

EXAMPLES = 60
# Awkward on purpose: few words, and names that contain words, names and the marks of the tokenizer.
WORDS = ("is", "in", "a", "a-b", "'s", "-born", ",", ".")
NAMES = (
    *("Paris", "New York", "York", "is", "is in", "in a", "a", "[a]", "[is]", "a]", "[", "]", "[a] is [a", "x,"),
    *(
        "The is",
        "São Tomé",
        "東京",
        "d'Or",
        "is a",
        " a",
        "a ",
        "Paris is",
        "b\tc",
        "“q”",
        "'s",
        "1,0",
        "Who?",
        "e\u0301",
    ),
)
MARKS = (BEGIN, END, SUBJECT, OBJECT)
words = st.sampled_from(WORDS) | st.text("ab'.-", min_size=1, max_size=3)
names = st.sampled_from(NAMES) | st.text(min_size=1, max_size=4).filter(lambda name: name.strip() and name not in MARKS)


@st.composite
def templates(draw: st.DrawFn) -> Template:
    parts = draw(st.lists(words, max_size=4))
    for place in draw(st.permutations((SUBJECT, OBJECT))):
        parts.insert(draw(st.integers(0, len(parts))), place)
    return Template.parse(" ".join(parts))


@st.composite
def languages(draw: st.DrawFn) -> Knowledge:
    """One to three tasks; either place first, several values for a key, entities and sentences shared."""
    pool = st.sampled_from(draw(st.lists(names, min_size=2, max_size=6, unique=True)))
    tasks = []
    for number in range(draw(st.integers(1, 3))):
        wordings = draw(st.lists(templates(), min_size=1, max_size=3, unique=True))
        table = draw(st.lists(st.tuples(pool, pool), min_size=1, max_size=5, unique=True))
        tasks.append(Task(f"task {number}", tuple(wordings), tuple(table)))
    return Knowledge(tuple(tasks))


@settings(deadline=None, max_examples=EXAMPLES)
@given(languages())
def test_valid_next_is_what_the_sentences_say(knowledge: Knowledge) -> None:
    sentences = {sentence.words for sentence in knowledge.sentences()}
    expected: dict[tuple[str, ...], set[str]] = {}
    for sentence in sentences:
        for length in range(len(sentence) + 1):
            expected.setdefault(sentence[:length], set()).add((*sentence, END)[length])
    assert dict(knowledge.trie.walk()) == expected
    assert {prefix: knowledge.trie.valid_next(prefix) for prefix in expected} == expected
    assert {prefix for prefix in expected if prefix in knowledge.trie} == sentences
    assert len(knowledge.trie) == len(sentences)
    for sentence in sentences:
        assert not knowledge.trie.valid_next((*sentence, END))
        assert not knowledge.trie.valid_next((*sentence, "no such symbol"))


@settings(deadline=None, max_examples=EXAMPLES)
@given(languages())
def test_symbols_and_entities_correspond(knowledge: Knowledge) -> None:
    entities = {name for task in knowledge.tasks for pair in task.pairs for name in pair}
    assert len({knowledge.symbol(name) for name in entities}) == len(entities)
    assert not knowledge.names & knowledge.words
    used = {word for sentence in knowledge.sentences() for word in sentence.words}
    assert used == set(knowledge.vocabulary)


@settings(deadline=None, max_examples=EXAMPLES)
@given(languages())
def test_text_reads_back_as_the_tokens_it_was_written_from(knowledge: Knowledge) -> None:
    tokenizer = KnowledgeTokenizer(knowledge)
    assert tokenizer.symbols[2:] == knowledge.vocabulary
    for sentence in knowledge.sentences():
        ids = tokenizer.encode_sentence(sentence.words)
        assert [tokenizer.symbols[index] for index in ids[1:-1]] == list(sentence.words)
        for length in range(1, len(ids)):
            assert tokenizer.encode(tokenizer.decode(ids[:length])) == ids[:length]


@settings(deadline=None, max_examples=EXAMPLES)
@given(languages(), st.integers(0, 5), st.sampled_from((0.0, 0.2, 0.5, 0.9)))
def test_training_keeps_every_pair_and_template(knowledge: Knowledge, seed: int, fraction: float) -> None:
    sentences = knowledge.sentences()
    wanted = round(fraction * len(sentences))
    if wanted and not any(can_be_held_out(alike, sentences, wanted) for alike in {s.words for s in sentences}):
        with pytest.raises(DataError, match="no sentence can be held out"):
            split(knowledge, seed, fraction)
        return
    train, test = split(knowledge, seed, fraction)
    assert Counter(train) + Counter(test) == Counter(sentences)
    assert covered(train) == covered(sentences)
    assert not {s.words for s in train} & {s.words for s in test}
    assert bool(test) == bool(wanted)
    assert len(test) <= wanted
    assert split(knowledge, seed, fraction) == (train, test)


def covered(sentences: list[Sentence]) -> set[tuple[int, str, int]]:
    return {(s.task, "pair", s.pair) for s in sentences} | {(s.task, "template", s.template) for s in sentences}


def can_be_held_out(words: tuple[str, ...], sentences: list[Sentence], wanted: int) -> bool:
    rest = [s for s in sentences if s.words != words]
    return len(sentences) - len(rest) <= wanted and covered(rest) == covered(sentences)


@settings(deadline=None, max_examples=EXAMPLES)
@given(languages(), st.sampled_from(("facts.jsonl", "facts.jsonl.gz")))
def test_files_read_back_equal(knowledge: Knowledge, name: str) -> None:
    with TemporaryDirectory() as folder:
        write_knowledge(knowledge, Path(folder) / name)
        assert read_knowledge(Path(folder) / name) == knowledge
        tokenizer = KnowledgeTokenizer(knowledge)
        tokenizer.save(folder)
        assert KnowledgeTokenizer.load(folder).symbols == tokenizer.symbols
        assert sorted(path.name for path in Path(folder).iterdir()) == sorted((name, "knowledge_tokenizer.json"))
