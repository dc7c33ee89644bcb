"""One check for each of the 25 kinds of instruction of IFEval (arXiv 2311.07911, table 1).

A check takes the response and the arguments of the data set's row. Where the published scorer uses a downloaded
tokenizer of sentences and words and a language classifier, rules of :mod:`.language` and of this file stand in.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from routelab.evaluate.harness.ifeval.language import is_language

_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"\w+(?:[-'’.&/]\w+)*")
# A sentence ends with a mark before white space or the end, unless it is that of an initial or a usual abbreviation.
_ABBREVIATION = re.compile(r"(?:\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|a\.m|p\.m|U\.S|No|Inc|Ltd))\.$")
_END = re.compile(r"[.!?。！？।][\"'”’)\]*]*(?=\s|$)")


def no_comma(response: str) -> bool:
    return "," not in response


def number_words(response: str, *, relation: str, num_words: int) -> bool:
    return _compare(len(_WORD.findall(response)), relation, num_words)


def number_sentences(response: str, *, relation: str, num_sentences: int) -> bool:
    return _compare(count_sentences(response), relation, num_sentences)


def forbidden_words(response: str, *, forbidden_words: Sequence[str]) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in forbidden_words)


def existence(response: str, *, keywords: Sequence[str]) -> bool:
    return all(_occurrences(response, keyword) for keyword in keywords)


def frequency(response: str, *, relation: str, keyword: str, frequency: int) -> bool:
    return _compare(_occurrences(response, keyword), relation, frequency)


def letter_frequency(response: str, *, let_relation: str, letter: str, let_frequency: int) -> bool:
    return _compare(response.lower().count(letter.lower()), let_relation, let_frequency)


def number_highlighted_sections(response: str, *, num_highlights: int) -> bool:
    """Highlights are ``*like this*`` or ``**like this**`` within a line."""
    found = [*re.findall(r"\*([^\n*]*)\*", response), *re.findall(r"\*\*([^\n*]*)\*\*", response)]
    return sum(bool(text.strip()) for text in found) >= num_highlights


def repeat_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


def quotation(response: str) -> bool:
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def english_lowercase(response: str) -> bool:
    return response.islower() and is_language(response, "en")


def english_capital(response: str) -> bool:
    return response.isupper() and is_language(response, "en")


def capital_word_frequency(response: str, *, capital_relation: str, capital_frequency: int) -> bool:
    capitals = sum(word.isupper() for word in _TOKEN.findall(response))
    return _compare(capitals, capital_relation, capital_frequency)


def title(response: str) -> bool:
    """A title stands between ``<<`` and ``>>``, on one line."""
    return any(found.strip("<> ") for found in re.findall(r"<<[^\n]+>>", response))


def number_bullet_lists(response: str, *, num_bullets: int) -> bool:
    found = re.findall(r"^\s*(?:\*[^*].*|-.*)$", response, re.MULTILINE)
    return len(found) == num_bullets


def response_language(response: str, *, language: str) -> bool:
    return is_language(response, language)


def number_placeholders(response: str, *, num_placeholders: int) -> bool:
    return len(re.findall(r"\[.*?\]", response)) >= num_placeholders


def number_paragraphs(response: str, *, num_paragraphs: int) -> bool:
    """Paragraphs are divided by ``***``; only the first and the last may be empty."""
    return _filled(re.split(r"\s?\*\*\*\s?", response)) == num_paragraphs


def end_checker(response: str, *, end_phrase: str) -> bool:
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def postscript(response: str, *, postscript_marker: str) -> bool:
    letters = [re.escape(letter) for letter in re.findall(r"\w", postscript_marker.lower())]
    marked = r"\.\s?".join(letters) + (r"\." if len(letters) == 2 else "")
    return re.search(marked, response.lower()) is not None


def two_responses(response: str) -> bool:
    parts = response.split("******")
    if _filled(parts) != 2:
        return False
    first, second = (part.strip() for part in parts if part.strip())
    return first != second


def json_format(response: str) -> bool:
    text = re.sub(r"^```(?:json)?|```$", "", response.strip(), flags=re.IGNORECASE).strip()
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def multiple_sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    return len(re.findall(rf"\s?{re.escape(section_spliter)}\s?\d+\s?", response)) >= num_sections


def nth_paragraph_first_word(response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Paragraphs are divided by an empty line; as published, an empty one keeps its number but is not counted."""
    paragraphs = response.split("\n\n")
    if sum(bool(each.strip()) for each in paragraphs) != num_paragraphs or nth_paragraph > num_paragraphs:
        return False
    words = paragraphs[nth_paragraph - 1].split()
    found = re.match(r"[^.,?!'\"]*", words[0].lstrip("'\"")) if words else None
    return found is not None and found[0].lower() == first_word.lower()


def constrained_response(response: str) -> bool:
    return any(option in response for option in _OPTIONS)


def count_sentences(text: str) -> int:
    """Return the number of sentences: ends of sentences, and a last one that has no end."""
    ends = [
        end.end()
        for end in _END.finditer(text)
        if not (end[0].startswith(".") and _ABBREVIATION.search(text[: end.start() + 1]))
    ]
    rest = text[ends[-1] :] if ends else text
    return len(ends) + bool(rest.strip(string.punctuation + string.whitespace))


def _compare(count: int, relation: str, threshold: int) -> bool:
    return count < threshold if relation == "less than" else count >= threshold


def _occurrences(response: str, keyword: str) -> int:
    return len(re.findall(re.escape(keyword), response, re.IGNORECASE))


def _filled(parts: Sequence[str]) -> int:
    """Return how many parts hold something; -1 where one between two others does not."""
    if any(not part.strip() for part in parts[1:-1]):
        return -1
    return sum(bool(part.strip()) for part in parts)


CHECKS: Mapping[str, Callable[..., bool]] = MappingProxyType(
    {
        "change_case:capital_word_frequency": capital_word_frequency,
        "change_case:english_capital": english_capital,
        "change_case:english_lowercase": english_lowercase,
        "combination:repeat_prompt": repeat_prompt,
        "combination:two_responses": two_responses,
        "detectable_content:number_placeholders": number_placeholders,
        "detectable_content:postscript": postscript,
        "detectable_format:constrained_response": constrained_response,
        "detectable_format:json_format": json_format,
        "detectable_format:multiple_sections": multiple_sections,
        "detectable_format:number_bullet_lists": number_bullet_lists,
        "detectable_format:number_highlighted_sections": number_highlighted_sections,
        "detectable_format:title": title,
        "keywords:existence": existence,
        "keywords:forbidden_words": forbidden_words,
        "keywords:frequency": frequency,
        "keywords:letter_frequency": letter_frequency,
        "language:response_language": response_language,
        "length_constraints:nth_paragraph_first_word": nth_paragraph_first_word,
        "length_constraints:number_paragraphs": number_paragraphs,
        "length_constraints:number_sentences": number_sentences,
        "length_constraints:number_words": number_words,
        "punctuation:no_comma": no_comma,
        "startend:end_checker": end_checker,
        "startend:quotation": quotation,
    }
)
