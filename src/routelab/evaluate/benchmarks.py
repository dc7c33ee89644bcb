"""Published benchmarks as generated answers to one question of the user, which a control word can follow."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from routelab.errors import DataError, EvaluationError, closest
from routelab.evaluate.splits import split_rows

Row = dict[str, Any]

# They ask for a form and not for steps: whether there are any is what the mode decides.
BOXED = "Put the final answer in \\boxed{}."
LETTERED = "End with a line that holds #### and the letter of the right choice."
LETTERS = "ABCD"

#: The subjects that the authors of MMLU (arXiv 2009.03300) count as STEM.
STEM = (
    "abstract_algebra",
    "astronomy",
    "college_biology",
    "college_chemistry",
    "college_computer_science",
    "college_mathematics",
    "college_physics",
    "computer_security",
    "conceptual_physics",
    "electrical_engineering",
    "elementary_mathematics",
    "high_school_biology",
    "high_school_chemistry",
    "high_school_computer_science",
    "high_school_mathematics",
    "high_school_physics",
    "high_school_statistics",
    "machine_learning",
)

GPQA_COLUMNS = ("Question", "Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))


def gsm8k_bare(limit: int | None, *, path: str = "gsm8k", split: str = "test") -> Row:
    """GSM8K's question and nothing else, as hybrid corpora ask it."""
    rows = split_rows(path, split, limit)
    golds = [
        str(_field(row, "answer", path, i)).rpartition("####")[2].strip().replace(",", "") for i, row in enumerate(rows)
    ]
    return _open_questions("gsm8k", rows, path, "question", golds, note="", max_new_tokens=512)


def math500(limit: int | None, *, path: str = "math500", split: str = "test") -> Row:
    """MATH-500 (arXiv 2305.20050): rows with ``problem`` and ``answer``."""
    rows = split_rows(path, split, limit)
    golds = [str(_field(row, "answer", path, i)) for i, row in enumerate(rows)]
    return _open_questions("math500", rows, path, "problem", golds, note=BOXED, max_new_tokens=4096)


def aime24(limit: int | None, *, path: str = "aime24", split: str = "test") -> Row:
    """AIME 2024: rows with ``problem`` and ``answer``; thirty problems, so take the mean over samples."""
    rows = split_rows(path, split, limit)
    golds = [str(_field(row, "answer", path, i)) for i, row in enumerate(rows)]
    return _open_questions("aime24", rows, path, "problem", golds, note=BOXED, max_new_tokens=8192)


def mmlu(limit: int | None, *, path: str = "mmlu", split: str = "test", subject: str = "", seed: int = 0) -> Row:
    """MMLU (arXiv 2009.03300): all 57 subjects, or those of ``subject``, separated by commas.

    Rows come by subject; ``limit`` therefore draws its questions with ``seed``.
    """
    return _mmlu([name.strip() for name in subject.split(",") if name.strip()], path, split, limit, seed)


def mmlu_stem(limit: int | None, *, path: str = "mmlu", split: str = "test", seed: int = 0) -> Row:
    """The 18 STEM subjects of MMLU; ``limit`` draws its questions with ``seed``."""
    return _mmlu(STEM, path, split, limit, seed)


def gpqa(limit: int | None, *, path: str, split: str = "train", seed: int = 0) -> Row:
    """GPQA (arXiv 2311.12022), from the authors' ``.csv`` or a hub name that you have access to; ``seed`` orders the
    choices. Its text is never stored: records keep neither prompt nor output.
    """
    rows = _csv_rows(path, limit) if path.endswith(".csv") else split_rows(path, split, limit)
    examples = []
    for number, row in enumerate(rows):
        question, right, *wrong = (str(_field(row, name, path, number)).strip() for name in GPQA_COLUMNS)
        choices = [right, *wrong]
        random.Random(f"gpqa/{seed}/{number}").shuffle(choices)
        examples.append(_choice_question(f"gpqa-{number}", question, choices, choices.index(right)))
    return {**_lettered(examples, max_new_tokens=8192), "private": True}


def _mmlu(subjects: Sequence[str], path: str, split: str, limit: int | None, seed: int) -> Row:
    rows = list(enumerate(split_rows(path, split)))
    known = {str(_field(row, "subject", path, number)) for number, row in rows}
    for subject in subjects:
        if subject not in known:
            raise EvaluationError(f"{path} ({split}) has no subject {subject!r}{closest(subject, known)}")
    rows = [(number, row) for number, row in rows if not subjects or row["subject"] in subjects]
    if limit is not None and limit < len(rows):
        rows = sorted(random.Random(f"mmlu/{seed}").sample(rows, limit), key=lambda pair: pair[0])
    examples = []
    for number, row in rows:
        question, choices, gold = (_field(row, name, path, number) for name in ("question", "choices", "answer"))
        if len(choices) != len(LETTERS) or gold not in range(len(choices)):
            raise DataError(
                f"row {number} of {path} needs four choices and the number of one, not {choices!r}, {gold!r}"
            )
        examples.append(_choice_question(f"mmlu-{split}-{number}", question, choices, gold))
    return _lettered(examples, max_new_tokens=2048)


def _open_questions(
    name: str, rows: Sequence[Row], path: str, column: str, golds: Iterable[str], note: str, max_new_tokens: int
) -> Row:
    examples = []
    for number, (row, gold) in enumerate(zip(rows, golds, strict=True)):
        question = f"{_field(row, column, path, number)}\n\n{note}".strip()
        if not gold:
            raise DataError(f"row {number} of {path} has no answer")
        examples.append({"id": f"{name}-{number}", "prompt": [{"role": "user", "content": question}], "gold": gold})
    return {"kind": "answer", "examples": tuple(examples), "max_new_tokens": max_new_tokens}


def _choice_question(name: str, question: str, choices: Sequence[str], gold: int) -> Row:
    listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=True))
    prompt = [{"role": "user", "content": f"{question}\n\n{listed}\n\n{LETTERED}"}]
    return {"id": name, "prompt": prompt, "gold": LETTERS[gold]}


def _lettered(examples: Sequence[Row], max_new_tokens: int) -> Row:
    return {"kind": "answer", "examples": tuple(examples), "letters": LETTERS, "max_new_tokens": max_new_tokens}


def _csv_rows(path: str, limit: int | None) -> list[Row]:
    try:
        with Path(path).expanduser().open(encoding="utf-8", newline="") as file:
            rows: list[Row] = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    return rows[:limit]


def _field(row: Mapping[str, Any], name: str, path: str, number: int) -> Any:
    if name not in row or row[name] is None:
        raise DataError(f"row {number} of {path} has no {name!r}; it has {sorted(map(str, row))}")
    return row[name]
