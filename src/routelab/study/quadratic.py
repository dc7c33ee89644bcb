"""Two modes that share parameters, as two quadratics around one point (arXiv 2604.27201, appendix B, equations 19-21).

``L_r(b + d) = L_r(b) + g_r·d + d·H_r d / 2`` for r = 0 (no_think) and 1 (think), with shares ``p_0 + p_1 = 1``. Each
mode alone would move by ``d_r = -H_r⁻¹ g_r``. A dense model has one d for both, which is best at the mean of the two
weighted by ``p_r H_r`` (19), and pays for it (20)

    penalty = 1/2 (d_0 - d_1)ᵀ [(p_0 H_0)⁻¹ + (p_1 H_1)⁻¹]⁻¹ (d_0 - d_1),

which is ``p_0 p_1 / 2 (d_0 - d_1)ᵀ H (d_0 - d_1)`` where the curvatures are equal (21).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelab.errors import EvaluationError

#: The least curvature that counts, as a share of the largest one that either mode has in any direction.
FLOOR = 1e-3


@dataclass(frozen=True)
class Compromise:
    """What sharing costs.

    Attributes:
        apart, together: the moves d_0 and d_1 ``[2, k]``, and the best common one ``[k]``.
        penalty: how much higher the mean loss is after the best common move than after the two of their own.
        gain: how much the two moves of their own lower the mean loss; the penalty is a part of it.
        clipped: a curvature was below :data:`FLOOR`, or negative, and was raised to it.
    """

    apart: np.ndarray
    together: np.ndarray
    penalty: float
    gain: float
    clipped: bool


def compromise(gradients: np.ndarray, curvatures: np.ndarray, shares: tuple[float, float]) -> Compromise:
    """Return what two quadratics pay for a common minimum.

    A quadratic without a minimum has no optimum to be apart from, so directions of too little curvature, or negative
    one, get the curvature :data:`FLOOR`; the result says so.

    Args:
        gradients: ``[2, k]``, g_0 and g_1. curvatures: ``[2, k, k]``, symmetric H_0 and H_1. shares: p_0 and p_1.

    Raises:
        EvaluationError: shapes that do not fit, shares that are not positive with sum 1, or no curvature above zero.
    """
    size = gradients.shape[-1]
    if gradients.shape != (2, size) or curvatures.shape != (2, size, size):
        raise EvaluationError(
            f"gradients {gradients.shape} and curvatures {curvatures.shape} are not [2, k] and [2, k, k]"
        )
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise EvaluationError(f"the shares of two modes are above 0 and sum to 1, got {shares}")
    raised, clipped = _positive(curvatures.astype(np.float64))
    weighted = np.asarray(shares)[:, None, None] * raised
    apart = -np.linalg.solve(raised, gradients[..., None])[..., 0]
    together = np.linalg.solve(weighted.sum(0), (weighted @ apart[..., None]).sum(0))[:, 0]
    difference = apart[0] - apart[1]
    # (A⁻¹ + B⁻¹)⁻¹ = A (A + B)⁻¹ B
    parallel = weighted[0] @ np.linalg.solve(weighted.sum(0), weighted[1])
    gain = -0.5 * float(np.einsum("r,rk,rk->", np.asarray(shares), gradients, apart))
    return Compromise(apart, together, 0.5 * float(difference @ parallel @ difference), gain, clipped)


def _positive(curvatures: np.ndarray) -> tuple[np.ndarray, bool]:
    values, vectors = np.linalg.eigh(curvatures)
    largest = float(values.max())
    if largest <= 0:
        raise EvaluationError("no direction has a positive curvature in either mode, so there is no local minimum")
    raised = np.maximum(values, FLOOR * largest)
    return np.einsum("rij,rj,rkj->rik", vectors, raised, vectors), bool((raised != values).any())
