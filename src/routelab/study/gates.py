"""What the gates of attention-aware routing do (arXiv 2609.20974, equations 4 and 5), and how much the attention views
move the choice of experts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from routelab.errors import EvaluationError, HostError
from routelab.evaluate.generate import evaluating
from routelab.hosts.locate import locate
from routelab.methods.aar.layer import AttentionRouter, view_features
from routelab.methods.aar.method import AAR
from routelab.methods.attachment import attached
from routelab.study.texts import StudyText, run_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Equal bins of [0, 1]; a learnable gate scale may leave it, which is counted.
BINS = 20


class GateSums:
    """Sums over the tokens of one layer."""

    def __init__(self, views: Sequence[str], experts: int, top_k: int) -> None:
        self.views, self.experts, self.top_k = list(views), experts, top_k
        self.tokens = 0
        self.total = {view: np.zeros(experts) for view in views}
        self.squares = {view: np.zeros(experts) for view in views}
        self.histogram = {view: np.zeros(BINS, dtype=np.int64) for view in views}
        self.outside = dict.fromkeys(views, 0)
        self.moved = dict.fromkeys(["all views", *views], 0)
        self.replaced = dict.fromkeys(["all views", *views], 0)

    def add(self, router: AttentionRouter, hidden: Tensor, standard: Tensor, window: Tensor) -> None:
        """Count the tokens of one call of an attention router."""
        gates = router.gates(hidden, window)
        for view, gate in gates.items():
            values = gate.double().cpu().numpy()
            self.total[view] += values.sum(0)
            self.squares[view] += (values**2).sum(0)
            inside = (values >= 0) & (values <= 1)
            self.histogram[view] += np.histogram(values[inside], bins=BINS, range=(0, 1))[0]
            self.outside[view] += int((~inside).sum())
        before = _chosen(standard, self.top_k)
        # ``forward`` and not a call: this runs in a hook of a call.
        self._count("all views", before, _chosen(router.forward(hidden, standard, window), self.top_k))
        for view, gate in gates.items():
            alone = with_view(router, view, gate, standard, window)
            self._count(view, before, _chosen(alone, self.top_k))
        self.tokens += len(hidden)

    def summary(self, layer: int) -> dict[str, Any]:
        views = []
        for view in self.views:
            mean = self.total[view] / self.tokens
            variance = (self.squares[view] / self.tokens - mean**2).clip(0)
            views.append(
                {
                    "view": view,
                    "mean": float(mean.mean()),
                    "experts": mean.tolist(),
                    "sd": np.sqrt(variance).tolist(),
                    "histogram": (self.histogram[view] / (self.tokens * self.experts)).tolist(),
                    "outside": self.outside[view] / (self.tokens * self.experts),
                }
            )
        return {
            "layer": layer,
            "tokens": self.tokens,
            "views": views,
            "moved": {name: count / self.tokens for name, count in self.moved.items()},
            "replaced": {name: count / (self.tokens * self.top_k) for name, count in self.replaced.items()},
        }

    def _count(self, name: str, before: Tensor, after: Tensor) -> None:
        kept = (before[:, :, None] == after[:, None, :]).any(-1).sum(-1)
        self.moved[name] += int((kept < self.top_k).sum())
        self.replaced[name] += int((self.top_k - kept).sum())


def with_view(router: AttentionRouter, view: str, gate: Tensor, standard: Tensor, window: Tensor) -> Tensor:
    """Return equation 5 with the gates of every other view closed: ``(1 - α_v/V) W_r h + α_v g_v / V``."""
    views = len(router.views)
    logits = view_features(view, window.to(gate.dtype)) @ router.A[view].to(gate.dtype)
    return (1 - gate / views) * standard.to(gate.dtype) + gate * logits / views


def study_gates(model: PreTrainedModel, texts: Iterable[StudyText]) -> dict[str, Any]:
    """Return the distribution of the gates and what the views change, per layer of attention-aware routing.

    Texts are run one at a time and only sums are kept.

    Returns:
        ``layers``: per layer ``views`` (per view the ``mean`` gate; ``experts`` and ``sd``, mean and deviation over
        tokens for each expert; ``histogram``: the share of all gates in each of ``bins`` equal bins of [0, 1];
        ``outside``: the share beyond them), ``moved``: the share of tokens whose top-k set differs from that of the
        standard logits ``W_r h`` of the same router, and ``replaced``: the share of chosen experts that do; both with
        all views, and with each view alone.

    Raises:
        HostError: no attention-aware routing is attached. EvaluationError: no text.
    """
    methods = [method for method in attached(model) if isinstance(method, AAR)]
    if not methods:
        raise HostError("gates are those of attention-aware routing: attach it, or give --routing with a saved one")
    top_k = locate(model).top_k
    routers = [pair for method in methods for pair in method.routers()]
    sums = {layer: GateSums(router.views, router.A[router.views[0]].shape[1], top_k) for layer, router in routers}
    count = 0
    with evaluating(model), _counting(routers, sums):
        for text in texts:
            run_text(model, text.ids)
            count += 1
    if not count:
        raise EvaluationError("there is no text to look at")
    return {"texts": count, "bins": BINS, "layers": [sums[layer].summary(layer) for layer in sorted(sums)]}


@contextmanager
def _counting(routers: Sequence[tuple[int, AttentionRouter]], sums: dict[int, GateSums]) -> Iterator[None]:
    handles = [router.register_forward_pre_hook(partial(_count, sums[layer])) for layer, router in routers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _count(sums: GateSums, router: AttentionRouter, inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    with torch.no_grad():
        sums.add(router, *inputs)


def _chosen(logits: Tensor, top_k: int) -> Tensor:
    return logits.topk(top_k, dim=-1).indices
