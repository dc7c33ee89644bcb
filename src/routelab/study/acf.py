"""How far the attention window is correlated with itself (arXiv 2609.20974, section 4.3 and figure 2).

The paper plots "the normalised ACF, averaged over query tokens" and gives no formula. Here, of a window ``w [M]``::

    r(k) = Σ_t (w_t - w̄)(w_{t+k} - w̄) / Σ_t (w_t - w̄)²,        t = 0 … M-1-k

the usual sample autocorrelation, averaged over all tokens whose window is full (fewer tokens before one would put zeros
into it). Of *any* sequence it sums to ``Σ_{k≥1} r(k) = -1/2``, so it must fall below 0.1 well inside the
window: a lag near M/2 or less says little by itself. The form without the mean, ``Σ_t w_t w_{t+k} / Σ_t w_t²``, has no
such constraint and stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from routelab.errors import EvaluationError, LayerError
from routelab.evaluate.generate import evaluating
from routelab.hosts.look import AttentionCall, looking_at_attention
from routelab.ops.window import window_attention
from routelab.study.texts import StudyText, run_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Below this an attention weight counts as uncorrelated (figure 2).
THRESHOLD = 0.1
_CONSTANT = 1e-12


def autocorrelation(window: Tensor, *, centred: bool = True) -> Tensor:
    """Return ``r(0) … r(M-1)`` of windows ``[T, M]``, none of them constant: ``[T, M]`` float64.

    ``centred`` subtracts each window's mean (see the module).
    """
    signal = window.double()
    if centred:
        signal = signal - signal.mean(-1, keepdim=True)
    size = signal.shape[-1]
    # Padded to twice its length, the circular correlation that the transform gives is the open one.
    power = torch.fft.rfft(signal, n=2 * size, dim=-1).abs().square()
    products = torch.fft.irfft(power, n=2 * size, dim=-1)[..., :size]
    return products / products[..., :1]


def first_below(curve: Sequence[float], threshold: float = THRESHOLD) -> int | None:
    """Return the first lag at which the curve lies below the threshold, None where it never does."""
    return next((lag for lag, value in enumerate(curve) if value < threshold), None)


@dataclass
class _Sums:
    """Sums over the tokens of one layer and window size."""

    centred: Tensor
    plain: Tensor
    weights: Tensor
    tokens: int = 0

    def add(self, window: Tensor) -> None:
        # Of a constant window nothing is left but rounding.
        varied = window[window.amax(-1) - window.amin(-1) > _CONSTANT]
        if not len(varied):
            return
        self.centred += autocorrelation(varied).sum(0).cpu()
        self.plain += autocorrelation(varied, centred=False).sum(0).cpu()
        self.weights += varied.double().sum(0).cpu()
        self.tokens += len(varied)


@dataclass
class _Collector:
    windows: Sequence[int]
    layers: Collection[int] | None
    sums: dict[tuple[int, int], _Sums] = field(default_factory=dict)

    def look(self, call: AttentionCall) -> None:
        if self.layers is not None and call.layer not in self.layers:
            return
        largest = max(self.windows)
        _, found = window_attention(call.query, call.key, call.value, largest, mask=call.mask, scale=call.scale)
        for size in self.windows:
            zeros = torch.zeros(3, size, dtype=torch.float64)
            sums = self.sums.setdefault((call.layer, size), _Sums(*zeros))
            sums.add(found[0, size - 1 :, largest - size :])


def window_acf(
    model: PreTrainedModel,
    texts: Iterable[StudyText],
    *,
    windows: Sequence[int] = (20, 64, 128),
    layers: Collection[int] | None = None,
) -> dict[str, Any]:
    """Return the autocorrelation of the attention window per layer and window size M, as plain data.

    Texts are run one at a time and only sums are kept: memory is that of one text, ``O(n M)``, whatever their number.

    Returns:
        ``curves``: one ``{"layer", "window", "tokens", "acf" [M], "lag", "uncentred" [M], "lag_uncentred", "weights"
        [M]}`` for each layer and M: a lag is the first below ``threshold`` or None, the weights are the mean window,
        the token itself last; ``texts`` and ``tokens``, how many.

    Raises:
        EvaluationError: no text, a window below 2, or no text as long as a window.
        LayerError: a layer without softmax attention.
    """
    if not windows or min(windows) < 2:
        raise EvaluationError(f"an autocorrelation needs windows of at least 2 weights, got {list(windows)}")
    collector = _Collector(sorted(set(windows)), layers)
    count = tokens = longest = 0
    with evaluating(model), looking_at_attention(model, collector.look):
        for text in texts:
            run_text(model, text.ids)
            count, tokens, longest = count + 1, tokens + len(text.ids), max(longest, len(text.ids))
    if not count:
        raise EvaluationError("there is no text to look at")
    unseen = sorted(set(layers or ()) - {layer for layer, _ in collector.sums})
    if unseen:
        raise LayerError(f"layers {unseen} have no softmax attention in this host, or do not exist")
    empty = sorted({size for (_, size), sums in collector.sums.items() if not sums.tokens})
    if empty:
        raise EvaluationError(
            f"no full window of {empty[0]} weights in texts of at most {longest} tokens; give longer ones"
        )
    return {
        "threshold": THRESHOLD,
        "texts": count,
        "tokens": tokens,
        "curves": [_curve(layer, size, sums) for (layer, size), sums in sorted(collector.sums.items())],
    }


def _curve(layer: int, size: int, sums: _Sums) -> dict[str, Any]:
    centred, plain, weights = ((each / sums.tokens).tolist() for each in (sums.centred, sums.plain, sums.weights))
    return {
        "layer": layer,
        "window": size,
        "tokens": sums.tokens,
        "acf": centred,
        "lag": first_below(centred),
        "uncentred": plain,
        "lag_uncentred": first_below(plain),
        "weights": weights,
    }
