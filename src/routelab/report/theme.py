"""Colours and text of figures: one restrained, colour-blind-safe palette for paper (light) and screen (light, dark).

Figures are drawn once, in the light colours. Inside the page each of these colours becomes a CSS variable, so that the
same drawing follows the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

INK = "#1d2430"
MUTED = "#68707f"
RULE = "#d9dde4"
CONTROL = "#7b8391"
ARMS = ("#0b66b0", "#c8500a", "#0a8a66", "#a8549a", "#8f6a00", "#3d3fa0")

#: light colour → (CSS variable, dark colour)
VARIABLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        INK: ("ink", "#e8ebf0"),
        MUTED: ("muted", "#9aa3b2"),
        RULE: ("rule", "#333a46"),
        CONTROL: ("control", "#99a2b1"),
        ARMS[0]: ("arm-1", "#5aa9e6"),
        ARMS[1]: ("arm-2", "#f08a4b"),
        ARMS[2]: ("arm-3", "#43c59e"),
        ARMS[3]: ("arm-4", "#d48ac8"),
        ARMS[4]: ("arm-5", "#d3ab3a"),
        ARMS[5]: ("arm-6", "#9a9cf0"),
    }
)


@dataclass(frozen=True)
class Metric:
    """How a task's number is shown: multiplied by ``scale``, with ``digits``, followed by ``unit``."""

    label: str
    scale: float
    digits: int
    unit: str
    difference_unit: str

    def say(self, value: float) -> str:
        """Return the number with its name, for a sentence."""
        return f"a {self.label} of {self.show(value)}" if self.label == "loss" else f"{self.show(value)} {self.label}"

    @property
    def axis(self) -> str:
        """The name of an axis that shows this metric."""
        return f"{self.label} ({self.unit})" if self.unit else f"{self.label} (lower is better)"

    def show(self, value: float | None) -> str:
        """Return the number as text, or a dash when there is none."""
        return "–" if value is None else f"{value * self.scale:.{self.digits}f}{self.unit}"

    def spread(self, value: float | None) -> str:
        """Return a standard deviation as text; empty when one seed gives none."""
        return "" if value is None else f" ± {value * self.scale:.{self.digits}f}"

    def difference(self, value: float) -> str:
        """Return a signed difference with its unit."""
        return f"{self.signed(value)} {self.difference_unit}"

    def interval(self, low: float, high: float) -> str:
        """Return an interval of signed differences."""
        return f"{self.signed(low)} to {self.signed(high)}"

    def signed(self, value: float) -> str:
        """Return a signed difference without its unit, with a true minus sign."""
        return f"{value * self.scale:+.{self.digits}f}".replace("-", "−")


def metric_of(task: Mapping[str, object]) -> Metric:
    """Return how the metric of a ``results.json`` task is shown."""
    if task["metric"] == "loss":
        return Metric("loss", 1.0, 4, "", "nats per token")
    return Metric(str(task["metric"]), 100.0, 1, "%", "points")


def arm_colours(arms: Sequence[str], control: str) -> dict[str, str]:
    """Return one colour per arm: grey for the control, the palette in order for the others."""
    others = [arm for arm in arms if arm != control]
    colours = {arm: ARMS[i % len(ARMS)] for i, arm in enumerate(others)}
    return {arm: colours.get(arm, CONTROL) for arm in arms}
