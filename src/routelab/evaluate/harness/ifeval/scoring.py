"""From a response to the four accuracies of IFEval (arXiv 2311.07911, section 2.3 and 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, product
from statistics import fmean
from typing import Any

from routelab.errors import EvaluationError, closest
from routelab.evaluate.harness.ifeval.checks import CHECKS


def follows(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float | list[bool]]:
    """Score one response: all instructions followed, and each, strictly and loosely."""
    strict = followed(doc, [results[0]])
    loose = followed(doc, variants(results[0]))
    return {
        "prompt_level_strict_acc": float(all(strict)),
        "inst_level_strict_acc": strict,
        "prompt_level_loose_acc": float(all(loose)),
        "inst_level_loose_acc": loose,
    }


def followed(doc: Mapping[str, Any], responses: Sequence[str]) -> list[bool]:
    """Return for every instruction whether one of ``responses`` follows it; an empty one follows none.

    Raises:
        EvaluationError: an instruction that there is no check for, or arguments that it does not take.
    """
    found = []
    for name, arguments in zip(doc["instruction_id_list"], doc["kwargs"], strict=True):
        if name not in CHECKS:
            raise EvaluationError(f"IFEval row {doc.get('key')}: no check for {name!r}{closest(name, CHECKS)}")
        try:
            found.append(any(response.strip() and CHECKS[name](response, **arguments) for response in responses))
        except TypeError as error:
            raise EvaluationError(f"IFEval row {doc.get('key')}: {name} does not take {arguments}: {error}") from error
    return found


def variants(response: str) -> list[str]:
    """Return the eight forms of the loose criterion: with and without the first line, the last, and asterisks."""
    lines = response.split("\n")
    cut = [
        "\n".join(lines[first : len(lines) - last]).strip() if first or last else response
        for first, last in product((0, 1), repeat=2)
    ]
    return cut + [text.replace("*", "") for text in cut]


def instruction_accuracy(scores: Sequence[Sequence[bool]]) -> float:
    """Aggregate over all instructions of all prompts."""
    return fmean(map(float, chain.from_iterable(scores)))
