"""How a path-locked model decides: what it reads, which words it finds, which one wins, which expert runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelab.methods.pathlock.config import MODES
from routelab.methods.pathlock.export import path_lock

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def trace_mode(model: PreTrainedModel, text: str) -> dict[str, Any]:
    """Return the decision on one rendered prompt, step by step, as plain data (arXiv 2604.27201, table 10).

    ``spans`` (who wrote what), ``header`` (where the last assistant header begins, or None), ``words`` (every control
    word that stands alone, whether it counts, whether it won), ``empty_block``, ``mode`` (name, index and what it comes
    from: ``word``, ``empty think block`` or ``default``), ``layers`` (those whose expert of that index runs).

    Raises:
        HostError: no path-locked experts are attached.
        ModeError: the text names no mode under a strict configuration, or both.
    """
    method = path_lock(model)
    decision = method.resolver.rule.decide(text)
    (index,) = method.resolver.fill([text], [decision.mode])
    source = "default" if decision.mode is None else "word" if decision.winner else "empty think block"
    return {
        "text": text,
        "spans": [{"start": span.start, "end": span.end, "role": span.role} for span in decision.spans],
        "header": decision.header,
        "words": [
            {
                "word": text[word.start : word.end],
                "start": word.start,
                "mode": MODES[word.mode],
                "counts": word.counts,
                "won": word == decision.winner,
            }
            for word in decision.words
        ],
        "empty_block": decision.empty_block,
        "mode": {"name": MODES[index], "index": index, "from": source},
        "layers": [layer for layer, _ in method.mlps()],
    }
