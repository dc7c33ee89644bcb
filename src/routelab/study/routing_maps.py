"""What routers do with many texts: load, entropy, experts chosen together, agreement of two models, and which experts
belong to which tasks and kinds of token.

Only counts are kept: memory is that of one text and of ``L E²`` numbers for L layers and E experts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.evaluate.generate import evaluating
from routelab.hosts.locate import locate
from routelab.study.alignment import alignment, count_choices
from routelab.study.experts import agreement
from routelab.study.texts import StudyText, run_text
from routelab.study.token_classes import CLASSES, vocabulary_classes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Pairs of experts that are named, those chosen together the most against chance.
PAIRS = 8


class RoutingCounts:
    """Sums over the texts that one model has read.

    Attributes:
        together: ``[L, E, E]``, tokens that chose both; the diagonal is how many chose the expert at all.
        entropy: ``[L]``, sum over tokens of the entropy of the router's distribution.
        by_task: ``[L, K, E]``; by_class: ``[L, C, E]``: choices.
    """

    def __init__(self, layers: Sequence[int], experts: int, top_k: int, tasks: Sequence[str]) -> None:
        self.layers, self.experts, self.top_k, self.tasks = list(layers), experts, top_k, list(tasks)
        self.together = np.zeros((len(layers), experts, experts), dtype=np.int64)
        self.entropy = np.zeros(len(layers))
        self.by_task = np.zeros((len(layers), len(tasks), experts), dtype=np.int64)
        self.by_class = np.zeros((len(layers), len(CLASSES), experts), dtype=np.int64)
        self.tokens = 0

    def add(self, logits: dict[int, Tensor], task: str, classes: np.ndarray) -> np.ndarray:
        """Count one text: router logits ``[n, E]`` by layer, its task and its tokens' classes ``[n]``.

        Returns the choices, ``[L, n, k]``.
        """
        chosen = choices(logits, self.top_k)
        for place, layer in enumerate(self.layers):
            hot = np.zeros((len(classes), self.experts), dtype=np.int64)
            np.put_along_axis(hot, chosen[place], 1, axis=1)
            self.together[place] += hot.T @ hot
            probabilities = logits[layer].double().softmax(-1)
            self.entropy[place] += float(-(probabilities * probabilities.clamp_min(1e-300).log()).sum())
        of_task = np.full(len(classes), self.tasks.index(task))
        self.by_task += count_choices(chosen, of_task, num_tasks=len(self.tasks), num_experts=self.experts)
        self.by_class += count_choices(chosen, classes, num_tasks=len(CLASSES), num_experts=self.experts)
        self.tokens += len(classes)
        return chosen

    def summary(self) -> dict[str, Any]:
        """Return every measure as plain data, see :func:`study_routing`."""
        return {
            "experts": self.experts,
            "top_k": self.top_k,
            "tasks": self.tasks,
            "tokens": self.tokens,
            "layers": [self._layer(place) for place in range(len(self.layers))],
        }

    def _layer(self, place: int) -> dict[str, Any]:
        together, tokens = self.together[place], self.tokens
        chosen = np.diagonal(together)
        load = chosen / chosen.sum()
        positive = load[load > 0]
        classes = [name for name, row in zip(CLASSES, self.by_class[place], strict=True) if row.any()]
        by_class = self.by_class[place][self.by_class[place].any(-1)]
        return {
            "layer": self.layers[place],
            "load": load.tolist(),
            "load_entropy": float(-(positive * np.log(positive)).sum() / math.log(self.experts)),
            "router_entropy": float(self.entropy[place] / tokens / math.log(self.experts)),
            "largest": float(load.max() * self.experts),
            "unused": int((chosen == 0).sum()),
            "together": (together / tokens).tolist(),
            "pairs": _pairs(together, tokens),
            "tasks": alignment(self.by_task[place]),
            "classes": {"names": classes, **alignment(by_class)},
        }


def choices(logits: dict[int, Tensor], top_k: int) -> np.ndarray:
    """Return the chosen experts ``[L, n, k]``, ascending in the last axis, layers in order."""
    return np.stack(
        [logits[layer].topk(top_k, dim=-1).indices.sort(-1).values.cpu().numpy() for layer in sorted(logits)]
    )


def study_routing(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[StudyText],
    tasks: Sequence[str],
    *,
    control: PreTrainedModel | None = None,
) -> dict[str, Any]:
    """Return what a model's routers do, and how far a control's agree, as plain data.

    Per layer: ``load``, each expert's share of the choices; ``load_entropy`` and ``router_entropy`` (of the load, and
    of the router's distribution, mean over tokens), over ``ln E``; ``largest`` load over the even one; ``unused``
    experts; ``together [E][E]``, the share of tokens that chose both experts of a pair; ``pairs``, those chosen
    together the most; ``tasks`` and ``classes``, the measures of :func:`routelab.study.alignment.alignment` of tasks
    and of kinds of token. With a control ``agreement``: per layer the share of chosen experts in common (mean over
    tokens), and ``control``, the same summary of it.

    Raises:
        EvaluationError: no text, a task without one, or a control of another host.
    """
    host = locate(model)
    if control is not None and locate(control).fingerprint() != host.fingerprint():
        raise EvaluationError(f"agreement is between equal hosts, not {host.fingerprint()} and another")
    layers = sorted(host.routers)
    kinds = np.array(vocabulary_classes(tokenizer, model.config.vocab_size))
    counts = [RoutingCounts(layers, host.num_experts, host.top_k, tasks) for _ in range(1 if control is None else 2)]
    common = np.zeros(len(layers))
    number = 0
    for text in texts:
        classes = kinds[np.array(text.ids)]
        found = []
        for each, sums in zip([model] if control is None else [model, control], counts, strict=True):
            with evaluating(each):
                found.append(sums.add(run_text(each, text.ids, routing=True) or {}, text.task, classes))
        if control is not None:
            common += agreement(*found) * len(classes)
        number += 1
    if not number:
        raise EvaluationError("there is no text to look at")
    result = {"texts": number, **counts[0].summary()}
    if control is None:
        return result | {"agreement": None, "control": None}
    shares = (common / counts[0].tokens).tolist()
    return result | {"agreement": dict(zip(map(str, layers), shares, strict=True)), "control": counts[1].summary()}


def _pairs(together: np.ndarray, tokens: int) -> list[dict[str, Any]]:
    """The pairs with the largest lift ``P(a, b) / (P(a) P(b))`` among those of which chance would give a token."""
    chosen = np.diagonal(together) / tokens
    expected = chosen[:, None] * chosen[None]
    first, second = np.triu_indices(len(chosen), 1)
    usual = expected[first, second] * tokens >= 1
    first, second = first[usual], second[usual]
    lifts = together[first, second] / tokens / expected[first, second]
    order = np.argsort(-lifts, kind="stable")[:PAIRS]
    return [
        {
            "experts": [int(first[i]), int(second[i])],
            "share": float(together[first[i], second[i]] / tokens),
            "lift": float(lifts[i]),
        }
        for i in order
    ]
