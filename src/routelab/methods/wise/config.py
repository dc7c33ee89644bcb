"""Configuration of working-set inference and its controls."""

from __future__ import annotations

from dataclasses import dataclass

from routelab.errors import closest
from routelab.methods.base_config import is_int, is_number, require

CONDITIONS = (
    "wise",
    "full",
    "static",
    "mass_matched",
    "size_matched",
    "freeze",
    "truncate",
    "sink_local",
    "random",
)
#: The conditions whose late support comes from the working set, so that they can freeze whenever it does.
FOLLOWERS = ("wise", "mass_matched", "size_matched", "sink_local", "random")
DISCOVERIES = ("fixed", "adaptive", "margin")
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class WISEConfig:
    """Working-set inference (arXiv 2609.27373, section 5) and the conditions it is measured against (appendix B).

    Attributes:
        condition: what happens after ``discovery_steps`` full steps. ``"wise"`` attends inside the working set;
            ``"full"`` to everything; ``"static"`` inside the support of step 1 (eq. 19); ``"mass_matched"`` inside the
            best blocks of step 1 up to the mass that the working set had there (eq. 21); ``"size_matched"`` inside as
            many of them as the working set has (eq. 22); ``"freeze"`` inside the working set with the weights of the
            last full step; ``"truncate"`` stops. ``"sink_local"`` (the first block and the latest ones) and
            ``"random"`` are nulls of the working set's size.
        discovery_steps: t_d, the last step of full attention.
        window: the working set is the union of the supports of this many steps, the last of them t_d.
        block_size: B, tokens of a block.
        mass: η in (0, 1], the share of attention mass that a support reaches; 1 means every admissible block.
        causal: one support per token instead of one per query block, so that none depends on a later token.
        discovery: ``"fixed"`` freezes at t_d; ``"adaptive"`` once the rolling working set is stable, ``"margin"`` each
            unit once its estimated drift is below its margin (theorem 6.1); both at t_d at the latest.
        seed: of the random null.
        backend: of ``ops.block_sparse``, which runs the late steps.
    """

    condition: str = "wise"
    discovery_steps: int = 12
    window: int = 4
    block_size: int = 32
    mass: float = 0.95
    causal: bool = False
    discovery: str = "fixed"
    seed: int = 0
    backend: str = "auto"

    def __post_init__(self) -> None:
        for field, known in (("condition", CONDITIONS), ("discovery", DISCOVERIES)):
            value = getattr(self, field)
            require(value in known, f"unknown {field} {value!r}{closest(value, known)}")
        for field in ("discovery_steps", "window"):
            value = getattr(self, field)
            require(is_int(value) and value >= 1, f"{field} must be an integer of at least 1, not {value!r}")
        require(
            is_int(self.block_size) and self.block_size in BLOCK_SIZES,
            f"block_size must be one of {', '.join(map(str, BLOCK_SIZES))}, not {self.block_size!r}",
        )
        require(is_number(self.mass) and 0 < self.mass <= 1, f"mass must lie in (0, 1], not {self.mass!r}")
        require(isinstance(self.causal, bool), f"causal must be true or false, not {self.causal!r}")
        require(is_int(self.seed) and self.seed >= 0, f"seed must be an integer of at least 0, not {self.seed!r}")
        require(isinstance(self.backend, str), f"backend must be a name, not {self.backend!r}")
        require(
            self.discovery == "fixed" or self.condition in FOLLOWERS,
            f"discovery {self.discovery!r} decides when a working set is final; condition {self.condition!r} is "
            f"defined at a fixed step: use discovery='fixed', or one of {', '.join(FOLLOWERS)}",
        )

    @property
    def query_block(self) -> int:
        """Tokens that share a support."""
        return 1 if self.causal else self.block_size

    @property
    def window_start(self) -> int:
        """The first step whose support joins the working set."""
        return max(1, self.discovery_steps - self.window + 1)
