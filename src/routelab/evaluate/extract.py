"""The final answer of a generated text, found by fixed rules.

In this order: ``#### 5``, ``\\boxed{5}``, "the answer is 5", and, as a last resort, the last number. Each time the
last occurrence counts, and what stands inside ``<think>...</think>`` never does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Where = Literal["hash", "boxed", "phrase", "last_number", "none"]

# A number as people write it: sign, currency, thousands, decimals, exponent or fraction or mixed fraction, percent. A
# minus directly after a word, digit or bracket is a subtraction, and digits inside a word ("x2", "H2O") are no number.
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?![\d,]*\d)|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(
    rf"""(?:(?<![\w.)\]}}%])(?P<minus>[-−]))?(?<![\w.])(?:\+|[$€£¥][ ]?(?P<minus_after>-)?)?
    (?:(?P<whole>\d+)[ ]+(?P<part>\d+[ ]?/[ ]?\d+)(?!\d)
      |(?P<value>{_UNSIGNED})(?:(?P<exponent>[eE][-+]?\d+)(?!\w)|[ ]?/[ ]?(?P<below>\d+)(?![\d/]))?)
    (?P<percent>\s?%)?""",
    re.VERBOSE,
)
_HASH = re.compile(r"####[ \t]*([^\n]*)")
_PHRASE = re.compile(
    r"\banswer\b(?:[^.\n:=]{0,40}?\b(?:is|are|was|equals|be)\b|\s*[:=])\s*:?\s*(?P<said>[^\n]*)", re.IGNORECASE
)
# Arithmetic and what it comes to: "3 x 4 = 12", "$5 + $3 = $8", "x = 5".
_EQUATION = re.compile(
    r"(?:[\d\s.,$€£¥%+\-−*/×÷·^()xX=]|\\(?:times|cdot|div)\b|\b[A-WYZa-wyz](?=\s*=))+=(?P<result>[^=]*)"
)
_OPERATOR = re.compile(r"\s*(?:[-+*^=(\\×÷·]|[xX]\s*\d)")
_SPACED_SIGN = re.compile(r"([$€£¥]?\s*[-−+])\s+(?=[$€£¥]?\s?[\d.])")
_SPACED_THOUSANDS = re.compile(r"([-−+]?[$€£¥]?\s?-?)([1-9]\d{0,2}(?:[ \u00a0\u202f]\d{3})+)(?!\s*[\d/]|,\d)")
_TAG = re.compile(r"</?(?:b|i|u|em|strong|code|mark|span|font|p|div|center)(?:\s+[\w-]+=[^<>]*)?>", re.IGNORECASE)
_BRACE = re.compile(r"(?P<box>\\{1,2}f?box(?:ed)?\s*\{)|\\.|[{}]", re.DOTALL)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_TEXT_MACRO = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}")
_TYPESETTING = (
    *(("{,}", ","), (r"\!", ""), (r"\,", ""), (r"\;", " "), (r"\ ", " ")),
    *((r"\$", "$"), (r"\%", "%"), ("**", "")),
)


@dataclass(frozen=True)
class Extracted:
    """An extracted answer.

    Attributes:
        answer: numbers in a canonical form (``"1234"``, ``"-0.5"``, ``"3/4"``, ``"1 1/2"``, ``"50%"``: no thousands
            separator, currency or unit), any other answer as it stands; empty where there is none.
        truncated: the text stops inside its thoughts or inside an unclosed ``\\boxed{``; the answer is then empty.
        where: the rule that found it. ``"last_number"`` is a guess, the others are what the text claims as its answer.
    """

    answer: str
    truncated: bool
    where: Where


def extract_answer(text: str) -> Extracted:
    """Return the final answer of ``text``; see the module for the rules."""
    spoken = spoken_part(text)
    if spoken is None:
        return Extracted("", True, "none")
    hashed = [answer for match in _HASH.finditer(spoken) if (answer := _after_hash(match[1]))]
    if hashed:
        return Extracted(hashed[-1], False, "hash")
    boxes = _boxes(spoken)
    if boxes and boxes[-1] is None:
        return Extracted("", True, "none")
    boxed = next((answer for box in reversed(boxes) if box and (answer := tidy(spoken[box]))), "")
    if boxed:
        return Extracted(boxed, False, "boxed")
    said = [answer for match in _PHRASE.finditer(spoken) if (answer := _after_phrase(match["said"]))]
    if said:
        return Extracted(said[-1], False, "phrase")
    numbers = [canonical(match) for match in NUMBER.finditer(_typeset(spoken))]
    return Extracted(numbers[-1], False, "last_number") if numbers else Extracted("", False, "none")


def spoken_part(text: str) -> str | None:
    """Return what ``text`` says outside its thoughts: all after the last ``</think>``; None if a thought is cut off."""
    _, closed, after = text.rpartition("</think>")
    spoken = after if closed else text
    return None if "<think>" in spoken else spoken


def canonical(match: re.Match[str]) -> str:
    """Return a match of :data:`NUMBER` in canonical form."""
    sign = "-" if match["minus"] or match["minus_after"] else ""
    if match["whole"]:
        digits = match["whole"] + " " + match["part"].replace(" ", "")
    else:
        digits = match["value"].replace(",", "")
        digits = f"0{digits}" if digits.startswith(".") else digits
        digits += match["exponent"] or (f"/{match['below']}" if match["below"] else "")
    return sign + digits + ("%" if match["percent"] else "")


def tidy(answer: str) -> str:
    """Return ``answer`` without typesetting; a number, alone or followed by a unit, in canonical form."""
    answer = _typeset(answer).strip().strip("$").strip().removesuffix(".").strip()
    match = NUMBER.match(answer)
    if match and re.fullmatch(r"\s*(?:[^\W\d_]+[²³]?[.\s/]*)*", answer[match.end() :]):
        return canonical(match)
    return answer


def _typeset(text: str) -> str:
    for written, meant in _TYPESETTING:
        text = text.replace(written, meant)
    return _TEXT_MACRO.sub(r" \1", text)


def _after_hash(line: str) -> str:
    """The answer on a ``####`` line; empty for what is a Markdown heading: several words that begin with no number."""
    line = _TAG.sub("", _typeset(line)).replace("`", "").strip().rstrip("#").strip()
    equation = _EQUATION.fullmatch(line)
    number = _leading_number(equation["result"] if equation else line)
    if number:
        return number
    return tidy(line) if "\\" in line or len(line.split()) == 1 else ""


def _leading_number(text: str) -> str:
    """The number that ``text`` begins with, also with spaces after its sign or between its thousands ("- 1 000").

    Empty where there is none or where it is only the first term of an expression.
    """
    text = text.strip()
    sign = _SPACED_SIGN.match(text)
    text = sign[1] + text[sign.end() :] if sign else text
    thousands = _SPACED_THOUSANDS.match(text)
    text = thousands[1] + re.sub(r"\s", "", thousands[2]) + text[thousands.end() :] if thousands else text
    match = NUMBER.match(text)
    return canonical(match) if match and not _OPERATOR.match(text, match.end()) else ""


def _after_phrase(said: str) -> str:
    """The answer in the rest of a sentence that began "the answer is": its number, else up to three words."""
    said = _SENTENCE_END.split(_typeset(said), maxsplit=1)[0]
    said = said.rpartition("=")[2]
    match = NUMBER.search(said)
    if match:
        return canonical(match)
    words = said.strip(" \t:*$\"'")
    return tidy(words) if len(words.split()) <= 3 else ""


def _boxes(text: str) -> list[slice | None]:
    """Where the content of each ``\\boxed{...}`` stands, in the order they open; None for one that is never closed.

    One pass, with a stack of open braces: nested and escaped braces are understood.
    """
    boxes: list[slice | None] = []
    opened: list[tuple[int, int] | None] = []
    for brace in _BRACE.finditer(text):
        if brace["box"]:
            opened.append((len(boxes), brace.end()))
            boxes.append(None)
        elif brace[0] == "{":
            opened.append(None)
        elif brace[0] == "}" and opened:
            box = opened.pop()
            if box:
                boxes[box[0]] = slice(box[1], brace.start())
    return boxes
