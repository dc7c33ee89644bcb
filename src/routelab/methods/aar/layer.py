"""The mathematics of attention-aware routing (arXiv 2609.20974, equations 1 to 5).

Shapes: T tokens, d hidden size, E experts, M window, K = floor(M/2) + 1 frequency bins, V views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def view_size(view: str, window: int) -> int:
    """Return the number of features of one view of a window of M weights."""
    return window if view == "time" else window // 2 + 1


def view_features(view: str, window: Tensor) -> Tensor:
    """Return one view of the attention window, equation 2.

    ``time``: ``w`` itself. ``frequency``: ``log(1 + |rDFT(w)|)``, the first ``K`` magnitude bins.

    Args:
        window: ``[T, M]``, float32 or float64.
    """
    return window if view == "time" else torch.log1p(torch.fft.rfft(window, dim=-1).abs())


class AttentionRouter(nn.Module):
    """Expert logits from attention windows, gated into the standard router's logits.

    Per view *v* with features ``w_v [T, M_v]``::

        g_v = A_v^T w_v                                    (3)
        a_v = s * sigmoid(G_v [h || w_v])                  (4)
        g   = (1 - mean_v a_v) * W_r h + mean_v(a_v * g_v) (5)

    ``A_v [M_v, E]`` and ``G_v [E, d + M_v]`` have no bias; ``s`` is 1, or a learnable scalar where ``gate_scale_init``
    is given (0.0 makes ``g = W_r h`` exactly). Both the interpolation and the gates are computed in float32 (float64
    for float64 inputs), so that a bf16 host keeps its top-k wherever the gates are closed.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        num_experts: int,
        window: int,
        views: Sequence[str],
        init_std: float,
        gate_scale_init: float | None,
        generator: torch.Generator | None,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.views = tuple(views)
        self.window = window

        def normal(*shape: int) -> nn.Parameter:
            if device.type == "meta":
                return nn.Parameter(torch.empty(shape, device=device))
            # Drawn on the CPU, so that a seed gives the same start on every device.
            return nn.Parameter((torch.randn(shape, generator=generator) * init_std).to(device))

        self.A = nn.ParameterDict({view: normal(view_size(view, window), num_experts) for view in self.views})
        self.G = nn.ParameterDict(
            {view: normal(num_experts, hidden_size + view_size(view, window)) for view in self.views}
        )
        self.gate_scale = (
            None if gate_scale_init is None else nn.Parameter(torch.tensor(float(gate_scale_init), device=device))
        )

    def gates(self, hidden: Tensor, window: Tensor) -> dict[str, Tensor]:
        """Return the gates ``a_v [T, E]`` of every view, equation 4."""
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        return {view: gate for view, gate, _ in self._views(hidden.to(dtype), window.to(dtype))}

    def _views(self, hidden: Tensor, window: Tensor) -> list[tuple[str, Tensor, Tensor]]:
        """Return ``(view, a_v, g_v)`` for every view, in the dtype of ``hidden``."""
        found = []
        for view in self.views:
            features = view_features(view, window)
            gate_h, gate_w = self.G[view].to(hidden.dtype).split([hidden.shape[-1], features.shape[-1]], dim=-1)
            # G [h || w] without building the concatenation for every token.
            gate = torch.sigmoid(F.linear(hidden, gate_h) + F.linear(features, gate_w))
            if self.gate_scale is not None:
                gate = self.gate_scale.to(hidden.dtype) * gate
            found.append((view, gate, features @ self.A[view].to(hidden.dtype)))
        return found

    def forward(self, hidden: Tensor, standard: Tensor, window: Tensor) -> Tensor:
        """Return the final router logits ``g``, equation 5.

        Args:
            hidden: ``h [T, d]``, any floating dtype.
            standard: ``W_r h [T, E]``, as the host computed it.
            window: ``w [T, M]``.

        Returns:
            ``[T, E]`` in float32, or float64 where ``hidden`` is.
        """
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        views = self._views(hidden.to(dtype), window.to(dtype))
        gate_mean = sum((gate for _, gate, _ in views[1:]), views[0][1]) / len(views)
        attention_mean = sum((gate * logits for _, gate, logits in views[1:]), views[0][1] * views[0][2]) / len(views)
        return (1 - gate_mean) * standard.to(dtype) + attention_mean
