"""Condensed direct answers: no_think targets made from think targets (arXiv 2604.27201, appendix A.11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from routelab.data.hybrid.targets import Message, Target
from routelab.errors import DataError

REQUEST = (
    "Below are a question, a train of thought and the answer it led to. Write the answer as a concise, direct reply to "
    "the question: a few sentences at most, with the final answer in the form given, and without reasoning aloud."
)


def condense(targets: Iterable[Target], rewrite: Callable[[Target], str]) -> list[Target]:
    """Put, in place of all no_think targets, one that ``rewrite`` makes of each think target.

    ``rewrite`` is :func:`bare_answer`, or a call of a stronger model with :func:`condensing_prompt`, as in the paper,
    where this made no_think answers worse. Its answers go through the same filters as any other target.
    """
    condensed = []
    for target in targets:
        if target.mode == "think":
            name, said = f"{target.id}/condensed", rewrite(target).strip()
            condensed += [target, replace(target, id=name, mode="no_think", thought="", answer=said)]
    return condensed


def bare_answer(target: Target) -> str:
    """Return the gold answer and nothing else: ``#### N``."""
    if target.gold is None:
        raise DataError(f"{target.id!r} has no gold answer to condense to")
    return f"#### {target.gold}"


def condensing_prompt(target: Target) -> list[Message]:
    """Return the messages that ask a stronger model to condense ``target``."""
    told = f"Question:\n{target.question}\n\nTrain of thought:\n{target.thought}\n\nAnswer:\n{target.answer}"
    return [{"role": "system", "content": REQUEST}, {"role": "user", "content": told}]
