"""Filters and scorers that the local task files name: what an output answers, and whether that is right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from routelab.evaluate.benchmarks import LETTERS
from routelab.evaluate.equivalence import equivalent
from routelab.evaluate.extract import extract_answer, spoken_part
from routelab.evaluate.scoring import extract_choice
from routelab.evaluate.short_answers import exact_match, token_f1

Doc = Mapping[str, Any]

_CLAIM = re.compile(r"\banswer\s*(?:is|:)\s*:?\s*(?P<said>[^\n]*)", re.IGNORECASE)
_OPTION = re.compile(r"\(([A-R])\)")
_LETTER = re.compile(r"\W*([A-R])\b(?!\s+[a-z])")


def without_thoughts(outputs: Sequence[Sequence[str]], docs: Sequence[Doc]) -> list[list[str]]:
    """Return what follows the last ``</think>`` of every output; nothing where a thought is cut off.

    A filter of the harness: one sequence of samples for each document.
    """
    return [[_spoken(output) for output in each] for each in outputs]


def mathematical(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Score a free answer by its value; ``answered``: one was found, by whatever rule."""
    found = extract_answer(results[0])
    return {"acc": float(equivalent(str(doc["answer"]), found.answer)), "answered": float(bool(found.answer))}


def lettered(outputs: Sequence[Sequence[str]], docs: Sequence[Doc]) -> list[list[str]]:
    """Return the letter that every output picks, of A to D; empty where it picks none. A filter."""
    return [[extract_choice(output, LETTERS).answer for output in each] for each in outputs]


def right_letter(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Score a letter that a filter found."""
    return {"acc": float(results[0] == doc["gold"]), "answered": float(bool(results[0]))}


def short_answer(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Score the first line of an answer by exact match and token F1."""
    answer, gold = first_line(results[0]), [str(doc["answer"])]
    return {"em": float(exact_match(answer, gold)), "f1": token_f1(answer, gold)}


def big_bench(doc: Doc, results: Sequence[str]) -> dict[str, float]:
    """Score an answer to a task of BIG-Bench Hard (arXiv 2210.09261) by exact match with its target.

    The answer is what stands after the last "answer is", else the first line. Where the target is an option, such as
    ``(B)``, the first option in it counts, or a letter it begins with; where the target is one word, its first word;
    else all of it. Case, quotes, commas, white space and a full stop at the end are not compared.
    """
    target = str(doc["target"])
    return {"exact_match": float(folded(big_bench_answer(results[0], target)) == folded(target))}


def big_bench_answer(output: str, target: str) -> str:
    """Return the answer in ``output``, in the form of ``target``."""
    claims = _CLAIM.findall(output)
    said = claims[-1] if claims else first_line(output)
    if _OPTION.fullmatch(target):
        option = _OPTION.search(said) or _LETTER.match(said)
        return f"({option[1]})" if option else ""
    if re.fullmatch(r"-?\w+", target):
        word = re.search(r"(?<!\w)-?\w+", said.replace(",", ""))
        return word[0] if word else ""
    return said


def _spoken(output: str) -> str:
    """Return an output without thoughts as it stands, else what is said after them."""
    return (spoken_part(output) or "").lstrip() if "think>" in output else output


def first_line(text: str) -> str:
    """Return the first line that holds something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def folded(text: str) -> str:
    """Return ``text`` without what is not compared."""
    return " ".join(re.sub(r"[\"'`*,]", " ", text).casefold().split()).removesuffix(".").strip()
