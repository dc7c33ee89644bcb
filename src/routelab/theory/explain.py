"""A constructed model at work: the next token, the expert, and the neurons that said it, in words."""

from __future__ import annotations

import os
from typing import Any

import torch

from routelab.errors import DataError
from routelab.theory.construct import Construction
from routelab.theory.storage import load


@torch.no_grad()
def explain(construction: Construction | str | os.PathLike[str], text: str) -> dict[str, Any]:
    """Return what a constructed model does after ``text``, as JSON values.

    ``next`` and its ``probability``; ``valid``, whether the knowledge allows it (None if no sentence begins like this);
    ``expert``, the task whose expert is chosen (None for the dense model); and ``neurons``, those that fire: ``index``,
    ``activation``, ``meaning`` and ``tasks``.

    Raises:
        DataError: a word that the model does not know, or a text longer than every sentence.
        CheckpointError: the directory holds no construction.
    """
    made = construction if isinstance(construction, Construction) else load(construction)
    ids = _encode(made, text)
    model, names = made.model, [task.name for task in made.knowledge.tasks]
    inner, tokens = model.model, torch.tensor([ids])
    out = model(input_ids=tokens, output_router_logits=True)
    states = inner.embed_tokens(tokens) + inner.positions()[: len(ids)]
    state = (states + inner.attention(states, None))[0, -1]
    expert = 0 if out.router_logits is None else int(out.router_logits[0][-1].argmax())
    active = torch.relu(inner.expert(expert).up(state))
    probabilities = out.logits[0, -1].softmax(-1)
    best = int(probabilities.argmax())
    symbols = made.tokenizer.symbols
    valid = made.knowledge.trie.valid_next([symbols[token] for token in ids[1:]])
    return {
        "text": text,
        "next": symbols[best],
        "probability": float(probabilities[best]),
        "valid": symbols[best] in valid if valid else None,
        "expert": None if made.router is None else names[expert],
        "neurons": [
            {
                "index": at,
                "activation": float(active[at]),
                "meaning": made.layout[expert][at].meaning(made.codes),
                "tasks": [names[task] for task in made.layout[expert][at].tasks],
            }
            for at in active.nonzero().flatten().tolist()
        ],
    }


@torch.no_grad()
def complete(construction: Construction | str | os.PathLike[str], text: str) -> str:
    """Return the sentence that the model makes of ``text``, the most probable token at every step.

    Raises:
        DataError: a word that the model does not know, or a text longer than every sentence.
        CheckpointError: the directory holds no construction.
    """
    made = construction if isinstance(construction, Construction) else load(construction)
    ids = _encode(made, text)
    while ids[-1] != made.tokenizer.eos_id and len(ids) <= made.model.config.max_length:
        ids.append(int(made.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return made.tokenizer.decode(ids)


def _encode(construction: Construction, text: str) -> list[int]:
    ids = construction.tokenizer.encode(text)
    longest = construction.knowledge.max_length
    if len(ids) > longest + 1:
        raise DataError(f"{text!r} has {len(ids) - 1} tokens; no sentence of this model has more than {longest}")
    return ids
