from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from routelab.errors import EvaluationError
from routelab.evaluate.harness.ifeval.checks import CHECKS, count_sentences
from routelab.evaluate.harness.ifeval.language import is_language
from routelab.evaluate.harness.ifeval.scoring import followed, follows, instruction_accuracy, variants

CASES = [
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "AN OLD man",
        "AN",
    ),
    ("change_case:english_capital", {}, "THE END IS NEAR", "The end"),
    ("change_case:english_lowercase", {}, "the end is near", "das ist nicht der, die und"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. Fine", "Fine. Say it."),
    ("combination:two_responses", {}, "one ****** two", "one ****** one"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] and [b]", "[a"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. more", "Bye. PS more"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S more", "P.S. more"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "maybe"),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```', "{a: 1}"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Part", "num_sections": 2},
        "Part 1 a\nPart 2 b",
        "Part 1",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* **b**", "** ** *a*"),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<< >>"),
    ("keywords:existence", {"keywords": ["Sun", "moon"]}, "sunny MOON", "sun"),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "rocket", "a Rock!"),
    ("keywords:frequency", {"relation": "less than", "keyword": "war", "frequency": 2}, "war", "War and warm"),
    ("keywords:letter_frequency", {"let_relation": "at least", "letter": "t", "let_frequency": 2}, "Ttx", "tx"),
    ("language:response_language", {"language": "de"}, "Das ist nicht der Hund", "This is not the dog"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        'First.\n\n"Then," she said',
        "First.\n\nNow then",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n\n***\nb"),
    ("length_constraints:number_sentences", {"relation": "at least", "num_sentences": 2}, "One. Two.", "One of 2.5 kg"),
    ("length_constraints:number_words", {"relation": "less than", "num_words": 3}, "two words", "it is three"),
    ("punctuation:no_comma", {}, "none here", "one, here"),
    ("startend:end_checker", {"end_phrase": "The End."}, 'and so: "the end."', "the end. Or not"),
    ("startend:quotation", {}, ' "said" ', '"said'),
]


@pytest.mark.parametrize(("name", "arguments", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_every_instruction(name: str, arguments: dict, good: str, bad: str) -> None:
    assert CHECKS[name](good, **arguments)
    assert not CHECKS[name](bad, **arguments)


def test_every_check_is_tested() -> None:
    assert {case[0] for case in CASES} == set(CHECKS)


def test_the_data_set_asks_for_nothing_else(data_root: Path) -> None:
    """Every instruction and argument of the 541 prompts is known; no prompt follows itself by an error."""
    with gzip.open(data_root / "ifeval" / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        docs = [json.loads(line) for line in file]
    assert len(docs) == 541
    assert all(len(followed(doc, ["A reply."])) == len(doc["kwargs"]) for doc in docs)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("यह एक बड़ा घर है और इसमें लोग रहते हैं।", "hi"),
        ("हे एक मोठे घर आहे आणि तेथे लोक राहत आहेत.", "mr"),
        ("यो एउटा ठूलो घर हो र यहाँ मानिसहरू बस्छन् भने छ।", "ne"),
        ("Это большой дом, и в нём живут люди.", "ru"),
        ("Това е голяма къща и в нея живеят хора, които се познават.", "bg"),
        ("هذا بيت كبير يعيش فيه الناس على التل", "ar"),
        ("این یک خانه بزرگ است که مردم در آن زندگی می‌کنند", "fa"),
        ("یہ ایک بڑا گھر ہے جس میں لوگ رہتے ہیں", "ur"),
        ("Đây là một ngôi nhà lớn và có nhiều người", "vi"),
        ("Nyumba hii ni kubwa na watu wengi wanaishi ndani ya nyumba", "sw"),
        ("Tämä on iso talo ja siinä asuu ihmisiä, mutta se ei ole uusi", "fi"),
        ("Esta é uma casa grande e não é para os que moram longe", "pt"),
        ("Questa è una casa grande che non è di nessuno", "it"),
        ("이것은 큰 집입니다", "ko"),
        ("ఇది పెద్ద ఇల్లు", "te"),
        ("THE HOUSE IS BIG AND OLD", "en"),
        ("123 !", "ta"),
    ],
)
def test_languages(text: str, language: str) -> None:
    assert is_language(text, language)
    assert is_language(text, "th") == (not any(map(str.isalpha, text)))


def test_sentences() -> None:
    assert count_sentences('Mr. J. Smith paid 3.50 to the U.S. bank. "Why?" he asked! no end') == 4
    assert count_sentences("") == 0


def test_loose_forms_drop_first_and_last_lines_and_asterisks() -> None:
    assert variants("a\n*b*\nc") == ["a\n*b*\nc", "a\n*b*", "*b*\nc", "*b*", "a\nb\nc", "a\nb", "b\nc", "b"]
    doc = {"key": 7, "instruction_id_list": ["startend:quotation", "punctuation:no_comma"], "kwargs": [{}, {}]}
    scores = follows(doc, ['Sure, here:\n"yes"'])
    assert scores["inst_level_strict_acc"] == [False, False]
    assert scores["prompt_level_loose_acc"] == 1
    assert followed(doc, [""]) == [False, False]
    assert instruction_accuracy([[True, False], [True]]) == pytest.approx(2 / 3)


def test_what_has_no_check_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"row 1.*did you mean 'punctuation:no_comma'"):
        followed({"key": 1, "instruction_id_list": ["punctuation:no_coma"], "kwargs": [{}]}, ["a"])
    with pytest.raises(EvaluationError, match="does not take"):
        followed({"key": 1, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"x": 1}]}, ["a"])
    with pytest.raises(EvaluationError, match="no rules to tell"):
        is_language("a", "zz")
