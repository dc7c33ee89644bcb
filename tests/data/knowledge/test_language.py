"""Templates, tasks, knowledge and V on the paper's example and on the smallest awkward cases."""

from __future__ import annotations

import pytest

from routelab.data.knowledge import END, OBJECT, SUBJECT, Knowledge, Task, Template, Trie
from routelab.errors import DataError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[X] is in [Y].", "⋆1 is in ⋆2 ."),
        ("⋆1 is in ⋆2 .", "⋆1 is in ⋆2 ."),
        ("[X], who holds a citizenship of [Y],", "⋆1 , who holds a citizenship of ⋆2 ,"),
        ("[Y]-born [X]'s life, briefly", "⋆2 -born ⋆1 's life, briefly"),
        ("[X] is a [Y]-born person.", "⋆1 is a ⋆2 -born person ."),
        ("⋆1⋆2", "⋆1 ⋆2"),
        ("\t[X]  met\n[Y] in the U.S.", "⋆1 met ⋆2 in the U.S ."),
    ],
)
def test_words_of_a_template(text: str, words: str) -> None:
    template = Template.parse(text)
    assert str(template) == words
    assert template.words == tuple(words.split())
    assert Template.parse(str(template)) == template


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("it is in [Y] .", r"0 places for the subject, not 1: ⋆1 or \[X\]"),
        ("⋆1 is there .", r"0 places for the object, not 1: ⋆2 or \[Y\]"),
        ("⋆1 is ⋆1 in ⋆2 .", "2 places for the subject"),
        ("[X] is in [Z] .", r"unknown placeholder '\[Z\]'; did you mean '\[(X|Y)\]'"),
        ("⋆1 is in ⋆3 .", "unknown placeholder '⋆3'; did you mean '⋆(1|2)'"),
        ("⋆1 is in ⋆12 .", "unknown placeholder '⋆12'"),
        ("⋆1 [sic] is in ⋆2 .", "unknown placeholder"),
        ("⋆1 is in [ ⋆2 .", r"unknown placeholder '\['"),
        ("⋆1 is </s> ⋆2", "delimits sentences"),
        ("", "0 places for the subject"),
    ],
)
def test_a_template_is_refused_by_what_is_wrong_with_it(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Template.parse(text)


@pytest.mark.parametrize("words", [(SUBJECT, "is in", OBJECT), (SUBJECT, "", OBJECT), (SUBJECT, OBJECT, "end.")])
def test_words_that_split_further_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="split further"):
        Template(words)


def test_the_key_is_what_comes_first() -> None:
    assert Template.parse("⋆1 is in ⋆2 .").key == SUBJECT
    assert Template.parse("the capital ⋆2 of ⋆1").key == OBJECT


def test_places_are_filled_at_once() -> None:
    assert Template.parse("⋆2 has ⋆1").fill("New York", "a ⋆1") == ("a ⋆1", "has", "New York")


def test_the_papers_example(paper: Knowledge) -> None:
    assert [" ".join(sentence.words) for sentence in paper.sentences()] == [
        "Paris is in France .",
        "Madrid is in Spain .",
        "English is spoken widely in Canada .",
        "Hindi is spoken widely in India .",
    ]
    assert [(s.task, s.template, s.pair) for s in paper.sentences()] == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert [task.complexity for task in paper.tasks] == [5 + 2, 7 + 2]
    assert paper.max_length == 7
    assert paper.vocabulary[:5] == (".", "in", "is", "spoken", "widely")
    assert paper.vocabulary[5:] == tuple(sorted(paper.names))


@pytest.mark.parametrize(
    ("prefix", "following"),
    [
        ("", "English Hindi Madrid Paris"),
        ("Paris", "is"),
        ("Paris is", "in"),
        ("Paris is in", "France"),
        ("Paris is in France", "."),
        ("Paris is in France .", END),
        ("Hindi is spoken widely in", "India"),
        ("Paris is spoken", ""),
        ("France", ""),
        ("Rome", ""),
    ],
)
def test_valid_next(paper: Knowledge, prefix: str, following: str) -> None:
    assert paper.trie.valid_next(prefix.split()) == set(following.split())
    assert (prefix.split() in paper.trie) == (following == END)


def test_several_values_either_place_first_and_a_sentence_within_a_sentence() -> None:
    task = Task(
        "speaks",
        tuple(map(Template.parse, ("⋆1 speaks ⋆2", "⋆1 speaks ⋆2 well", "⋆2 is spoken by ⋆1"))),
        (("Ann", "Hindi"), ("Ann", "Dutch"), ("Bob", "Dutch")),
    )
    trie = Knowledge((task,)).trie
    assert trie.valid_next(["Ann", "speaks"]) == {"Hindi", "Dutch"}
    assert trie.valid_next(["Dutch", "is", "spoken", "by"]) == {"Ann", "Bob"}
    assert trie.valid_next(["Ann", "speaks", "Dutch"]) == {END, "well"}


def test_tasks_may_share_sentences() -> None:
    tasks = tuple(Task(name, (Template.parse("⋆1 in ⋆2"),), (("a", "b"),)) for name in ("one", "two"))
    knowledge = Knowledge(tasks)
    assert [sentence.task for sentence in knowledge.sentences()] == [0, 1]
    assert len(knowledge.trie) == 1


def test_an_entity_named_like_a_word_is_another_symbol() -> None:
    task = Task("film", (Template.parse("⋆1 is by ⋆2"),), (("is", "by"), ("[is]", "Ann")))
    knowledge = Knowledge((task,))
    assert [sentence.words for sentence in knowledge.sentences()] == [
        ("[is]", "is", "by", "[by]"),
        ("[[is]]", "is", "by", "Ann"),
    ]
    assert knowledge.trie.valid_next(["[is]", "is", "by"]) == {"[by]"}


@pytest.mark.parametrize(
    ("templates", "pairs", "said"),
    [
        ((), (("a", "b"),), "'t' has no template"),
        (("⋆1 ⋆2",), (), "'t' has no pair"),
        (("⋆1 in ⋆2.", "[X] in [Y] ."), (("a", "b"),), "has the template '⋆1 in ⋆2 .' twice"),
        (("⋆1 ⋆2",), (("a", "b"), ("a", "b")), "has the pair .* twice"),
        (("⋆1 ⋆2",), (("a", " "),), "visible character"),
        (("⋆1 ⋆2",), (("a", END),), "'</s>' is a placeholder, or"),
        (("⋆1 ⋆2",), (("⋆2", "a"),), "'⋆2' is a placeholder, or"),
    ],
)
def test_a_task_is_refused(templates: tuple[str, ...], pairs: tuple[tuple[str, str], ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Task("t", tuple(map(Template.parse, templates)), pairs)


def test_knowledge_is_of_tasks_with_different_names(paper: Knowledge) -> None:
    with pytest.raises(DataError, match="at least one task"):
        Knowledge(())
    with pytest.raises(DataError, match="two tasks are called 'place'"):
        Knowledge((*paper.tasks, paper.tasks[0]))


def test_a_trie_keeps_its_end_mark_to_itself() -> None:
    with pytest.raises(DataError, match="marks the end"):
        Trie([("a", END, "b")])
