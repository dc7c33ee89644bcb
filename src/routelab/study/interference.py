"""Do think and no_think pull a dense model's MLPs apart? Asked before any training, so that it tells whether separate
experts will pay (arXiv 2604.27201, appendix B).

With ``l_i`` the mean loss over the labelled tokens of example i and n_r examples of mode r, ``g_r = 1/n_r sum_i ∇l_i``
is the gradient of the mode in the example-weighted objective (equation 10), and ``s_r = sum_i T_i ∇l_i`` its part of
the token-summed one, in which long answers weigh more (the paper's length-induced asymmetry).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from routelab.errors import EvaluationError, LayerError
from routelab.hosts.dense import locate_dense
from routelab.study.mode_gradients import (
    MODES,
    Gradient,
    GradientProbe,
    Labelled,
    ModeGradient,
    cosine,
    dot,
    untouched,
)
from routelab.study.quadratic import compromise

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PARALLEL = 1e-6  # of the second gradient, what must stand across the first one for them to span a plane


@dataclass(frozen=True)
class LayerInterference:
    """The gradients of two modes in the MLP of one layer, or of all of them.

    Attributes:
        layer: its index; None for all chosen layers together.
        cosine: between g_no_think and g_think; -1: opposed, 1: agreed. None where one of them is zero.
        same_mode: per mode, the cosine between its even and its odd examples: what the cosine of two samples of one and
            the same mode is, so that a low ``cosine`` can be told from too few examples. None for fewer than two.
        norm: per mode, the length of g_r.
        think_share: the length of s_think over the sum of both lengths; 1/2 where no mode drowns the other.
    """

    layer: int | None
    cosine: float | None
    same_mode: dict[str, float | None]
    norm: dict[str, float]
    think_share: float | None


@dataclass(frozen=True)
class CompromisePenalty:
    """What one shared set of MLPs costs in the local quadratic, restricted to the plane of the two gradients.

    Attributes:
        penalty: nats of the mean loss per labelled token (equation 20).
        of_gain: the penalty over what both modes could gain with MLPs of their own, from 0 (no conflict) to 1.
        curvature: per mode, the 2x2 Gauss-Newton matrix in the plane.
        clipped: in some direction there was almost no curvature, which was raised, so that the numbers are rough.
    """

    penalty: float
    of_gain: float
    curvature: dict[str, list[list[float]]]
    clipped: bool


@dataclass(frozen=True)
class Interference:
    """What :func:`probe_interference` found; plain data through ``dataclasses.asdict``.

    ``examples``, labelled ``tokens`` and mean ``loss`` by mode; the layers' MLPs one by one and ``overall``; the
    ``penalty``, None where it was not asked for or the gradients do not span a plane.
    """

    examples: dict[str, int]
    tokens: dict[str, int]
    loss: dict[str, float]
    layers: list[LayerInterference]
    overall: LayerInterference
    penalty: CompromisePenalty | None


def probe_interference(
    model: PreTrainedModel,
    examples: Mapping[str, Sequence[Labelled]],
    *,
    layers: Collection[int] | None = None,
    penalty: bool = True,
    step: float = 3e-4,
    on_progress: Callable[[int, int], None] | None = None,
) -> Interference:
    """Compare the gradients that think and no_think examples give to the MLPs of a dense host.

    One backward pass per example, and five forward passes for the penalty. Holds about a dozen copies of the chosen
    MLPs; take fewer ``layers`` where that is too much. The model is left as it was, gradients included.

    The curvature of the penalty is the Gauss-Newton matrix: the Hessian's part that has no negative direction, without
    which a quadratic need not have the minimum that the paper's is about.

    Args:
        examples: encoded chats by mode, ``{"no_think": [...], "think": [...]}``.
        layers: which layers; None: all.
        step: of the central differences, as a share of the length of the MLPs' parameters.
        on_progress: called with (passes done, passes in all).

    Raises:
        EvaluationError: a mode without examples, an example without labels, a loss that is not finite, or a penalty
            asked of a host that is not in float32 or float64.
        HostError: the host has no dense MLPs.
        LayerError: a layer that does not exist.
    """
    if set(examples) != set(MODES) or not all(examples.values()):
        given = {mode: len(chats) for mode, chats in examples.items()}
        raise EvaluationError(f"the probe needs examples of the modes {' and '.join(MODES)}, got {given}")
    mlps = _mlps(model, layers)
    if penalty and model.dtype not in (torch.float32, torch.float64):
        raise EvaluationError(
            f"differences of logits drown in {model.dtype}; load the host in float32, or penalty=False"
        )
    probe = GradientProbe(model, mlps, examples, 2 if penalty else 1, on_progress)
    with untouched(model, probe.parameters):
        first = {mode: probe.gradients(mode) for mode in MODES}
        found = _penalty(probe, {mode: first[mode].mean for mode in MODES}, step) if penalty else None
    return Interference(
        examples={mode: len(examples[mode]) for mode in MODES},
        tokens={mode: first[mode].tokens for mode in MODES},
        loss={mode: first[mode].loss for mode in MODES},
        layers=[_compare(index, first, part) for index, part in probe.slices.items()],
        overall=_compare(None, first, slice(None)),
        penalty=found,
    )


def _mlps(model: PreTrainedModel, layers: Collection[int] | None) -> dict[int, nn.Module]:
    host = locate_dense(model)
    chosen = range(len(host.layers)) if layers is None else sorted(set(layers))
    for index in chosen:
        if index not in range(len(host.layers)):
            raise LayerError(f"there is no layer {index}; this host has layers 0 to {len(host.layers) - 1}")
    if not chosen:
        raise LayerError("no layer was chosen to probe")
    return {index: getattr(host.layers[index].module, str(host.layers[index].mlp)) for index in chosen}


def _penalty(probe: GradientProbe, gradients: Mapping[str, Gradient], step: float) -> CompromisePenalty | None:
    """The local quadratic in the plane of the two gradients; None where they do not span one."""
    basis = _basis(gradients)
    if basis is None:
        return None
    length = step * math.sqrt(dot(probe.parameters, probe.parameters))
    curvature = np.stack([probe.curvature(mode, basis, length) for mode in MODES])
    flat = np.array([[dot(axis, gradients[mode]) for axis in basis] for mode in MODES])
    counts = [len(probe.examples[mode]) for mode in MODES]
    found = compromise(flat, curvature, (counts[0] / sum(counts), counts[1] / sum(counts)))
    return CompromisePenalty(
        penalty=found.penalty,
        of_gain=found.penalty / found.gain,
        curvature={mode: curvature[i].tolist() for i, mode in enumerate(MODES)},
        clipped=found.clipped,
    )


def _basis(gradients: Mapping[str, Gradient]) -> tuple[Gradient, Gradient] | None:
    """An orthonormal basis of the plane of both gradients (Gram-Schmidt)."""
    first, second = (gradients[mode] for mode in MODES)
    norms = [math.sqrt(dot(each, each)) for each in (first, second)]
    if not all(norms):
        return None
    axis = [each / norms[0] for each in first]
    along = dot(axis, second)
    rest = [b - along * a for a, b in zip(axis, second, strict=True)]
    across = math.sqrt(dot(rest, rest))
    return None if across < _PARALLEL * norms[1] else (axis, [each / across for each in rest])


def _compare(layer: int | None, found: Mapping[str, ModeGradient], part: slice) -> LayerInterference:
    no_think, think = (found[mode] for mode in MODES)
    summed = [math.sqrt(dot(each.token_summed[part], each.token_summed[part])) for each in (no_think, think)]
    return LayerInterference(
        layer=layer,
        cosine=cosine(no_think.mean[part], think.mean[part]),
        same_mode={
            mode: cosine(found[mode].even[part], found[mode].odd[part]) if found[mode].examples > 1 else None
            for mode in MODES
        },
        norm={mode: math.sqrt(dot(found[mode].mean[part], found[mode].mean[part])) for mode in MODES},
        think_share=summed[1] / sum(summed) if sum(summed) else None,
    )
