"""Which heads gain from late discovery: how their early blocks foretell the late ones, and when they settle.

Appendix C.4 of arXiv 2609.27373 conjectures that discovery pays where early routing does not foretell late routing, and
names what it lacks to tell: the Jaccard of early and late block supports, and the gain of each head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from routelab.errors import EvaluationError
from routelab.methods.wise.config import WISEConfig
from routelab.study.working_set import LEVELS, jaccard, late_mass, settled_at
from routelab.study.working_set_masses import Masses


@dataclass(frozen=True)
class Heads:
    """The heads of one example, each ``[C][H]``.

    Attributes:
        early_late: ``J(B(1, η), B(T, η))``, the block supports of the first and the last step.
        gain: future mass that WISE's working set retains, less what SizeMatched's support of the same size does.
        size_matched: future mass of the latter.
        settled: step by which the head's own rolling set had a Jaccard of 0.90 in three transitions; T + 1 if never.
    """

    early_late: list[list[float]]
    gain: list[list[float]]
    size_matched: list[list[float]]
    settled: list[list[int]]


def heads(masses: Masses, config: WISEConfig) -> list[Heads]:
    """Return the heads of each example, with the t_d, η and window of ``config``."""
    sets = masses.rolling_sets(config.mass, config.window)
    steps = sets if config.window == 1 else masses.rolling_sets(config.mass, 1)
    early_late = jaccard(steps[0], steps[-1], (-2, -1))  # [C, B, H]
    rolling = jaccard(sets[:-1], sets[1:], (-2, -1))  # [T-1, C, B, H]
    future = {}
    for condition in ("wise", "size_matched"):
        support = masses.late_support(replace(config, condition=condition))
        kept, weight = late_mass(masses, support, config.discovery_steps)
        future[condition] = (kept * weight).sum((0, -1)) / weight.sum((0, -1))
    gain = future["wise"] - future["size_matched"]
    return [
        Heads(
            early_late=early_late[:, row].tolist(),
            gain=gain[:, row].tolist(),
            size_matched=future["size_matched"][:, row].tolist(),
            settled=[
                [settled_at(head, LEVELS[0]) for head in block.T.tolist()] for block in rolling[:, :, row].unbind(1)
            ],
        )
        for row in range(early_late.shape[1])
    ]


def summarise_heads(found: Sequence[Heads]) -> dict[str, Any]:
    """Return every head's means over examples, ``[C][H]``, and how they go together over heads.

    ``correlation``: Spearman's rank correlation over all heads of the mean gain with the mean settling step
    (``settled``) and with the mean early-to-late Jaccard (``early_late``); None where one of the two is constant.

    Raises:
        EvaluationError: no examples.
    """
    if not found:
        raise EvaluationError("there is no example whose heads could be summarised")
    means = {
        name: np.mean([getattr(one, name) for one in found], axis=0)
        for name in ("early_late", "gain", "size_matched", "settled")
    }
    correlation = {name: _spearman(means["gain"].ravel(), means[name].ravel()) for name in ("settled", "early_late")}
    return {"n": len(found), **{name: mean.tolist() for name, mean in means.items()}, "correlation": correlation}


def _spearman(first: np.ndarray, second: np.ndarray) -> float | None:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(spearmanr(first, second).statistic)
