"""Configuration of attention-aware routing, and which layers a selection means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from routelab.errors import ConfigError, LayerError
from routelab.methods.base_config import is_int, is_number, require

VIEWS = ("time", "frequency")
SOURCES = ("attention", "shuffled", "constant")

#: The paper's layers, by family and depth (section 4: OLMoE, Qwen1.5-MoE, Qwen3.6).
PAPER_LAYERS: Mapping[tuple[str, int], tuple[int, ...]] = MappingProxyType(
    {
        ("olmoe", 16): (9, 10, 11, 12, 13, 14, 15),
        ("qwen2_moe", 24): (14, 15, 16, 17),
        ("qwen3_5_moe_text", 40): (23, 27, 31),
    }
)
DEFAULT_RANGE = "55%-95%"

_INDEX_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)")
_PERCENT_RANGE = re.compile(r"(\d+(?:\.\d+)?)%\s*-\s*(\d+(?:\.\d+)?)%")
_LAYER_SOURCE = re.compile(r"layer:(\d+)")


@dataclass(frozen=True)
class AARConfig:
    """Attention-aware routing (arXiv 2609.20974, section 3.2).

    Attributes:
        layers: MoE layers whose router sees the attention window: ``"9-15"`` (inclusive), a list of indices,
            ``"all"``, ``"55%-95%"`` (index divided by depth, inclusive), or None for the paper's choice where the host
            is one of the paper's, else ``"55%-95%"``.
        window: M, the number of attention weights per token.
        views: ``"time"`` (the weights), ``"frequency"`` (their log-magnitude spectrum); ``("time",)`` is AAR^T.
        include_self: the window ends at the token itself (positions i-M+1 ... i) or just before it (i-M ... i-1).
        gate_scale_init: None leaves the gates as in the paper; a number multiplies them by a learnable scalar per layer
            that starts there. 0.0 makes the attached model exactly its host before training.
        window_source: ``"attention"``, or a placebo with the same parameters: ``"shuffled"`` (each token's weights in a
            fixed random order that depends on its position), ``"constant"`` (1/M everywhere), ``"layer:N"`` (the window
            of layer N instead of the layer's own; N must not come later than the first chosen layer).
        init_std: standard deviation of the normal initialisation of A and G.
        seed: seed of that initialisation and of the shuffled order.
    """

    layers: str | Sequence[int] | None = None
    window: int = 40
    views: Sequence[str] = VIEWS
    include_self: bool = True
    gate_scale_init: float | None = None
    window_source: str = "attention"
    init_std: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        if self.layers is not None and not isinstance(self.layers, str):
            require(
                isinstance(self.layers, Sequence) and all(is_int(index) for index in self.layers),
                f"layers must be a string or a list of layer indices, not {self.layers!r}",
            )
            object.__setattr__(self, "layers", tuple(self.layers))
        elif isinstance(self.layers, str) and self.layers != "all":
            known = _INDEX_RANGE.fullmatch(self.layers) or _PERCENT_RANGE.fullmatch(self.layers)
            require(
                known is not None,
                f"layers {self.layers!r} is none of 'all', '9-15', '55%-95%' or a list of indices",
            )
        require(
            is_int(self.window) and self.window >= 1,
            f"window must be an integer of at least 1, not {self.window!r}",
        )
        require(isinstance(self.views, Sequence), f"views must be a list of view names, not {self.views!r}")
        views = (self.views,) if isinstance(self.views, str) else tuple(self.views)
        unknown = [view for view in views if view not in VIEWS]
        require(bool(views) and not unknown, f"views must name one or both of {VIEWS}, not {self.views!r}")
        require(len(set(views)) == len(views), f"views names a view twice: {views}")
        object.__setattr__(self, "views", views)
        require(
            isinstance(self.include_self, bool),
            f"include_self must be true or false, not {self.include_self!r}",
        )
        require(
            self.gate_scale_init is None or is_number(self.gate_scale_init),
            f"gate_scale_init must be a finite number or null, not {self.gate_scale_init!r}",
        )
        require(
            self.window_source in SOURCES or _LAYER_SOURCE.fullmatch(str(self.window_source)) is not None,
            f"window_source {self.window_source!r} is none of {', '.join(SOURCES)}, layer:N",
        )
        require(
            is_number(self.init_std) and self.init_std >= 0,
            f"init_std must be a finite number of at least 0, not {self.init_std!r}",
        )
        require(is_int(self.seed) and self.seed >= 0, f"seed must be an integer of at least 0, not {self.seed!r}")

    @property
    def source_layer(self) -> int | None:
        """N of ``window_source="layer:N"``, else None."""
        match = _LAYER_SOURCE.fullmatch(self.window_source)
        return int(match[1]) if match else None


def select_layers(
    layers: str | Sequence[int] | None, *, model_type: str, depth: int, allowed: Sequence[int]
) -> tuple[int, ...]:
    """Return the indices that a selection means in a host of ``depth`` layers of which ``allowed`` can be used.

    Named indices must all be usable; ``"all"``, a percentage range and the default take the usable ones among theirs.

    Raises:
        LayerError: an index does not exist, or names a layer without a router or without softmax attention.
        ConfigError: the selection is empty.
    """
    if layers is None:
        layers = PAPER_LAYERS.get((model_type, depth), DEFAULT_RANGE)
    if isinstance(layers, str) and (percent := _PERCENT_RANGE.fullmatch(layers)):
        low, high = (float(bound) / 100 for bound in percent.groups())
        chosen = tuple(index for index in allowed if low <= index / depth <= high)
    elif layers == "all":
        chosen = tuple(allowed)
    else:
        if isinstance(layers, str):
            span = _INDEX_RANGE.fullmatch(layers)
            assert span is not None  # AARConfig checked the form
            layers = range(int(span[1]), int(span[2]) + 1)
        chosen = tuple(sorted(set(layers)))
        _refuse_unusable(chosen, depth, allowed)
    if not chosen:
        raise ConfigError(f"layers selects no layer; usable layers of this host: {_listed(allowed)}")
    return chosen


def _refuse_unusable(chosen: Sequence[int], depth: int, allowed: Sequence[int]) -> None:
    outside = [index for index in chosen if not 0 <= index < depth]
    if outside:
        raise LayerError(f"layers {_listed(outside)} do not exist: the host has layers 0 to {depth - 1}")
    unusable = [index for index in chosen if index not in allowed]
    if unusable:
        raise LayerError(
            f"layers {_listed(unusable)} cannot be used: they have linear attention or no router; "
            f"allowed: {_listed(allowed)}"
        )


def _listed(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices)) or "none"
