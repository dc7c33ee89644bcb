"""What can be evaluated: named tasks, each a list of plain examples."""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

from routelab.data.chat import strip_calculator, to_messages
from routelab.data.mini_world import MiniWorld
from routelab.errors import DataError, EvaluationError, closest
from routelab.evaluate import benchmarks
from routelab.evaluate.splits import split_rows

Kind = Literal["answer", "choice", "loss"]
Row = dict[str, Any]

INSTRUCTION = "Solve the problem step by step. End with a line that holds #### and the final number."


@dataclass(frozen=True)
class Task:
    """A task with its examples.

    Attributes:
        kind: ``"answer"``: examples have ``id``, ``prompt`` (text or messages) and ``gold`` (text). ``"choice"``:
            ``id``, ``prompt``, ``choices`` and ``gold`` (an index). ``"loss"``: ``id`` and ``messages``.
        options: every option of the task, defaults included.
        letters: of an answer that picks a lettered choice; empty for a free answer.
        private: the text of its examples must not be written anywhere, so records keep neither prompt nor output.
    """

    name: str
    kind: Kind
    examples: tuple[Row, ...]
    options: Mapping[str, Any]
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    letters: str = ""
    private: bool = False
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        if not self.examples:
            raise EvaluationError(f"the task {self.name!r} has no examples with options {dict(self.options)}")
        text = json.dumps(self.examples, sort_keys=True, ensure_ascii=False)
        object.__setattr__(self, "sha256", hashlib.sha256(text.encode()).hexdigest())


def get_task(name: str, *, limit: int | None = None, **options: Any) -> Task:
    """Build the task ``name`` with its first ``limit`` examples (default: all, or 200 generated ones).

    Raises:
        EvaluationError: an unknown task or option (the nearest known one is named), or an option of the wrong type or
            out of its domain.
        DataError: the task's data cannot be read.
    """
    return task_with(name, limit, options)


def task_with(name: str, limit: int | None, options: Mapping[str, Any]) -> Task:
    """Build a task as :func:`get_task` does, from options that somebody wrote: their names may be any text."""
    settings = task_settings(name, options)
    if limit is not None and limit < 1:
        raise EvaluationError(f"a task needs at least one example, got limit {limit}")
    made = TASKS[name](limit, **settings)
    return Task(name=name, options=MappingProxyType(settings), **made)


def task_settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a task, defaults included; no rows are read.

    Raises:
        EvaluationError: as :func:`get_task`.
    """
    if "limit" in options:
        raise EvaluationError(f"the task {name!r} has no option 'limit'; the number of examples is given beside them")
    if name not in TASKS:
        raise EvaluationError(f"no task is called {name!r}{closest(name, TASKS)}")
    parameters = inspect.signature(TASKS[name], eval_str=True).parameters
    known = {key: parameter for key, parameter in parameters.items() if key != "limit"}
    for option, value in options.items():
        if option not in known:
            raise EvaluationError(f"the task {name!r} has no option {option!r}{closest(option, known)}")
        kinds = get_args(known[option].annotation) or (known[option].annotation,)
        if type(value) not in kinds:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise EvaluationError(f"the task {name!r}: the option {option!r} must be of type {wanted}, got {value!r}")
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in options:
            raise EvaluationError(f"the task {name!r} needs the option {option!r}")
    return {key: parameter.default for key, parameter in known.items()} | dict(options)


def _mini_arithmetic(
    limit: int | None, *, steps: int | str = "2-5", largest: int = 30, distractors: int = 0, seed: int = 0,
    split: str = "test", draw: int | str = 0,
) -> Row:  # fmt: skip
    """Word problems of the mini-world: ``steps`` is a number or a range, ``largest`` the largest number that occurs."""
    rows = MiniWorld(seed).arithmetic(
        split, limit or 200, steps=_steps(steps), limit=largest, distractors=distractors, draw=draw
    )
    chats = to_messages(rows, "arithmetic")
    examples = [
        {"id": row["id"], "prompt": chat["messages"][:-1], "gold": row["gold"]}
        for row, chat in zip(rows, chats, strict=True)
    ]
    return {"kind": "answer", "examples": tuple(examples), "max_new_tokens": 160}


def _mini_facts(limit: int | None, *, seed: int = 0, split: str = "test") -> Row:
    """Closed-book facts of the mini-world, four choices each; the choices are scored, not shown."""
    rows = MiniWorld(seed).facts(split, limit)
    chats = to_messages(rows, "facts")
    examples = [
        {"id": row["id"], "prompt": chat["messages"][:-1], "choices": row["choices"], "gold": row["gold"]}
        for row, chat in zip(rows, chats, strict=True)
    ]
    return {"kind": "choice", "examples": tuple(examples)}


def _mini_paragraphs(limit: int | None, *, seed: int = 0, split: str = "test", draw: int | str = 0) -> Row:
    """Loss of the answers to questions over paragraphs of the mini-world."""
    rows = MiniWorld(seed).paragraphs(split, limit or 200, draw=draw)
    return {"kind": "loss", "examples": tuple(to_messages(rows, "paragraphs"))}


def _gsm8k(
    limit: int | None, *, path: str = "gsm8k", split: str = "test", shots: int = 8, chat: bool = False, seed: int = 0
) -> Row:
    """Grade-school mathematics (arXiv 2110.14168) by chain of thought.

    ``shots`` worked examples from the train split are chosen by ``seed`` and put before every question, as plain text
    (``Question: ...\\nAnswer: ...``), or with ``chat`` as earlier turns of a chat after an instruction.
    """
    if shots < 0:
        raise EvaluationError(f"gsm8k takes no negative number of shots, got {shots}")
    train = split_rows(path, "train") if shots else []
    if len(train) < shots:
        raise EvaluationError(f"{path} has {len(train)} rows to take {shots} worked examples from")
    worked = random.Random(f"gsm8k/{seed}").sample(train, shots)
    for row in worked:
        _gsm8k_gold(row, f"a row of the train split of {path}")
    examples = []
    for number, row in enumerate(split_rows(path, split, limit)):
        gold = _gsm8k_gold(row, f"row {number} of {path} ({split})")
        prompt = _chat_prompt(worked, row) if chat else _text_prompt(worked, row)
        examples.append({"id": f"gsm8k-{split}-{number}", "prompt": prompt, "gold": gold})
    stop = () if chat else ("Question:",)
    return {"kind": "answer", "examples": tuple(examples), "stop": stop}


def _text_loss(limit: int | None, *, path: str = "gsm8k", split: str = "test", source: str = "gsm8k") -> Row:
    """Loss of the replies in held-out chats, by default GSM8K's worked solutions; ``source`` as in ``to_messages``."""
    return {"kind": "loss", "examples": tuple(to_messages(split_rows(path, split, limit), source))}


TASKS: Mapping[str, Callable[..., Row]] = MappingProxyType(
    {
        "aime24": benchmarks.aime24,
        "gpqa": benchmarks.gpqa,
        "gsm8k": _gsm8k,
        "gsm8k-bare": benchmarks.gsm8k_bare,
        "math500": benchmarks.math500,
        "mini-arithmetic": _mini_arithmetic,
        "mini-facts": _mini_facts,
        "mini-paragraphs": _mini_paragraphs,
        "mmlu": benchmarks.mmlu,
        "mmlu-stem": benchmarks.mmlu_stem,
        "text-loss": _text_loss,
    }
)


def _steps(steps: int | str) -> int | tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(steps))
    if not match:
        raise EvaluationError(f"steps is a number or a range such as '2-5', got {steps!r}")
    low, high = int(match[1]), int(match[2] or match[1])
    return (low, high)


def _gsm8k_gold(row: Row, where: str) -> str:
    if not {"question", "answer"} <= row.keys() or "####" not in row["answer"]:
        raise DataError(f"{where} is not of GSM8K: it needs a question and an answer with ####, and has {sorted(row)}")
    return str(row["answer"]).rpartition("####")[2].strip().replace(",", "")


def _text_prompt(worked: list[Row], row: Row) -> str:
    shown = [f"Question: {each['question']}\nAnswer: {strip_calculator(each['answer'])}\n\n" for each in worked]
    return "".join(shown) + f"Question: {row['question']}\nAnswer:"


def _chat_prompt(worked: list[Row], row: Row) -> list[dict[str, str]]:
    turns = []
    for each in worked:
        turns += [
            {"role": "user", "content": each["question"]},
            {"role": "assistant", "content": strip_calculator(each["answer"])},
        ]
    turns.append({"role": "user", "content": row["question"]})
    turns[0]["content"] = f"{INSTRUCTION}\n\n{turns[0]['content']}"
    return turns
