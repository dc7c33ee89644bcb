"""Attention sinks: how much attention falls on the first token, layer by layer, and what routing does to it
(arXiv 2609.20974, section 5.1 and figure 3).

``s_l = mean_{i ≥ 1} mean_h P^{l,h}_{i,0}`` over the tokens of a text but its first, which can attend to nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from routelab.errors import EvaluationError, LayerError
from routelab.evaluate.generate import evaluating
from routelab.evaluate.stats import Scores, paired_bootstrap
from routelab.hosts.locate import locate
from routelab.hosts.look import AttentionCall, looking_at_attention, patched_routing
from routelab.methods.attachment import attached
from routelab.study.texts import StudyText, run_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Attention scores held at once.
_TILE = 2**20


def first_token_weight(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Return the attention weight of the first key for every query of one row, mean over heads: ``[q]``.

    Some queries at a time, so that ``H q k`` numbers are never held.

    Args:
        query: ``[1, H, q, d]``. key: ``[1, G, k, d]``, G a divisor of H.
        mask: bool ``[1, 1, q, k]``, true where a query may attend; None: causal, queries are the last of the keys.
    """
    heads, length, keys = query.shape[1], query.shape[2], key.shape[2]
    dtype = torch.promote_types(query.dtype, torch.float32)
    grouped = query[0].unflatten(0, (key.shape[1], -1))
    transposed = key[0].to(dtype).transpose(-1, -2)
    slots = torch.arange(keys, device=query.device)
    weights = []
    for tile in torch.arange(length, device=query.device).split(max(1, _TILE // (heads * keys))):
        part = grouped[:, :, tile].to(dtype).flatten(1, 2) * scale
        scores = (part @ transposed).view(heads, len(tile), keys)
        barred = slots > tile[:, None] + keys - length if mask is None else ~mask[0, 0, tile]
        scores.masked_fill_(barred, -torch.inf)
        weights.append((scores[..., 0] - scores.logsumexp(-1)).exp().mean(0))
    return torch.cat(weights)


@dataclass(frozen=True)
class Sinks:
    """The sinks of one model.

    Attributes:
        layers: those with softmax attention. tokens: of all texts.
        texts: per text, ``s_l`` of every one of ``layers``.
        routed: the first layer that the attached methods route in; None with none attached.
    """

    layers: list[int]
    texts: dict[str, list[float]]
    tokens: int
    routed: int | None

    def of(self, layer: int) -> dict[str, float]:
        """Return one layer's sink per text."""
        place = self.layers.index(layer)
        return {name: values[place] for name, values in self.texts.items()}


def sinks(model: PreTrainedModel, texts: Iterable[StudyText]) -> Sinks:
    """Measure the sinks of a model, one text at a time; one number a layer is kept of each.

    Raises:
        EvaluationError: no text, two texts of one name, or a text of a single token.
    """
    found: dict[str, dict[int, float]] = {}
    tokens = 0
    with evaluating(model):
        for text in texts:
            if text.id in found:
                raise EvaluationError(f"two texts are called {text.id!r}")
            found[text.id] = _of_text(model, text)
            tokens += len(text.ids)
    if not found:
        raise EvaluationError("there is no text to look at")
    layers = sorted(next(iter(found.values())))
    kept = {name: [each[layer] for layer in layers] for name, each in found.items()}
    return Sinks(layers, kept, tokens, first_routed(model))


def first_routed(model: PreTrainedModel) -> int | None:
    """Return the first layer that an attached method was placed in, None where none is attached."""
    return min((layer for method in attached(model) for layer in method.summary().layers), default=None)


def compare_sinks(ours: Sinks, control: Sinks) -> dict[str, Any]:
    """Return two models' sinks and their difference on the same texts, as plain data.

    ``layers``: one ``{"layer", "model", "control", "difference": {"mean", "low", "high", …}}`` each, the interval over
    texts (95 %). ``routed``: the first layer that the model routes in. ``marked``: the layer after it, where a change
    of routing can first show.

    Raises:
        EvaluationError: the two are of different layers or texts, or there are fewer than two texts.
    """
    if ours.layers != control.layers:
        raise EvaluationError(f"the models have softmax attention in layers {ours.layers} and {control.layers}")
    routed = ours.routed if ours.routed is not None else control.routed
    return {
        "texts": len(ours.texts),
        "tokens": ours.tokens,
        "routed": routed,
        "marked": None if routed is None else next((layer for layer in ours.layers if layer > routed), None),
        "layers": [
            {
                "layer": layer,
                "model": fmean(ours.of(layer).values()),
                "control": fmean(control.of(layer).values()),
                "difference": _difference(ours.of(layer), control.of(layer)),
            }
            for layer in ours.layers
        ],
    }


def patch_sinks(
    model: PreTrainedModel,
    donor: PreTrainedModel,
    texts: Iterable[StudyText],
    *,
    layers: Collection[int] | None = None,
) -> dict[str, Any]:
    """Give ``model`` the routing that ``donor`` chose in one layer, layer by layer, and watch the sinks that follow.

    The causal form of :func:`compare_sinks`: donor and model read the same text, the donor's router logits of one layer
    stand in for the model's own, and everything else is the model's. What changes is caused by that layer's routing; up
    to the layer itself nothing can.

    Args:
        layers: which to patch, one at a time; None: all that have a router. All of them at once come last.

    Returns:
        ``layers``; ``control``, the model's own sinks; ``patches``: one ``{"patched": [layer, …], "moved": share of
        tokens whose experts the patch changed, "differences": [{"layer", "mean", "low", "high", …}]}`` each;
        ``before``, the largest change in a layer up to the patched one (0 unless the forward is not deterministic).

    Raises:
        EvaluationError: the models are of different hosts, or fewer than two texts.
        LayerError: a layer without a router.
    """
    host = locate(model)
    theirs = locate(donor).fingerprint()
    if theirs != host.fingerprint():
        raise EvaluationError(f"routing is patched between equal hosts, not {host.fingerprint()} and {theirs}")
    single = sorted(host.routers) if layers is None else sorted(set(layers))
    unknown = sorted(set(single) - set(host.routers))
    if unknown:
        raise LayerError(f"layers {unknown} have no router; layers that have one: {sorted(host.routers)}")
    groups = [(layer,) for layer in single] + ([tuple(single)] if len(single) > 1 else [])
    own: dict[str, dict[int, float]] = {}
    patched: list[dict[str, dict[int, float]]] = [{} for _ in groups]
    moved = [0] * len(groups)
    tokens = 0
    with evaluating(model), evaluating(donor):
        for text in texts:
            given, before = (run_text(each, text.ids, routing=True) or {} for each in (donor, model))
            own[text.id] = _of_text(model, text)
            tokens += len(text.ids)
            for number, group in enumerate(groups):
                moved[number] += _moved(given, before, group, host.top_k)
                with patched_routing(model, {layer: given[layer] for layer in group}):
                    patched[number][text.id] = _of_text(model, text)
    if not own:
        raise EvaluationError("there is no text to look at")
    seen = sorted(next(iter(own.values())))
    return {
        "texts": len(own),
        "tokens": tokens,
        "layers": seen,
        "control": [fmean(values[layer] for values in own.values()) for layer in seen],
        "before": _largest_before(groups, patched, own),
        "patches": [
            {
                "patched": list(group),
                "moved": changed / (tokens * len(group)),
                "differences": [{"layer": layer, **_difference(_at(found, layer), _at(own, layer))} for layer in seen],
            }
            for group, found, changed in zip(groups, patched, moved, strict=True)
        ],
    }


def _of_text(model: PreTrainedModel, text: StudyText) -> dict[int, float]:
    """One text's sink per layer with softmax attention."""
    if len(text.ids) < 2:
        raise EvaluationError(f"text {text.id!r} has {len(text.ids)} token; a sink needs one that can look elsewhere")
    found: dict[int, float] = {}

    def look(call: AttentionCall) -> None:
        found[call.layer] = float(first_token_weight(call.query, call.key, call.mask, call.scale)[1:].mean())

    with looking_at_attention(model, look):
        run_text(model, text.ids)
    return found


def _moved(ours: Mapping[int, Tensor], own: Mapping[int, Tensor], layers: Iterable[int], top_k: int) -> int:
    """In how many (layer, token) the chosen sets differ."""
    total = 0
    for layer in layers:
        first, second = (logits[layer].topk(top_k, dim=-1).indices.sort(-1).values for logits in (ours, own))
        total += int((first.cpu() != second.cpu()).any(-1).sum())
    return total


def _largest_before(
    groups: Sequence[tuple[int, ...]],
    patched: Sequence[Mapping[str, Mapping[int, float]]],
    own: Mapping[str, Mapping[int, float]],
) -> float:
    return max(
        abs(value - own[name][layer])
        for group, found in zip(groups, patched, strict=True)
        for name, values in found.items()
        for layer, value in values.items()
        if layer <= min(group)
    )


def _at(found: Mapping[str, Mapping[int, float]], layer: int) -> dict[str, float]:
    return {name: values[layer] for name, values in found.items()}


def _difference(ours: Scores, control: Scores) -> dict[str, Any]:
    return asdict(paired_bootstrap(ours, control, resamples=2000))
