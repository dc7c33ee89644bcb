"""What a hybrid corpus should be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from routelab.data.hybrid.targets import WORDS, Mode
from routelab.data.reflection import SCRIPT_WORDS, ReflectiveWords
from routelab.errors import ConfigError, closest

PAIRINGS = ("same", "different", "any")
EVERYWHERE = "*"


@dataclass(frozen=True)
class Limits:
    """The longest whole reply of each mode, thought and answer together; None: no limit."""

    think: int | None = None
    no_think: int | None = None

    def of(self, mode: Mode) -> int | None:
        """Return the limit of ``mode``."""
        return self.think if mode == "think" else self.no_think


@dataclass(frozen=True)
class HybridConfig:
    """How a hybrid corpus is built (arXiv 2604.27201, section 4.1).

    Attributes:
        pairing: ``"same"`` keeps a question only with both modes, answer by answer; ``"different"`` gives each question
            to one mode; ``"any"`` keeps what there is.
        ratio: no_think rows per think row; the mode that has too many loses some. None: as it comes.
        limits: by domain; ``"*"`` stands for the domains that are not named.
        reflective: words that no direct answer may hold; none of them switches the filter off.
        unverified: what happens to targets without a gold answer where answers are checked: ``"drop"`` or ``"keep"``.
        think, no_think: the control words that end the user's turn.
        validation, test: shares of the questions that are kept from training.
        seed: of the choice of questions where some have to go. Splits do not depend on it.

    Raises:
        ConfigError: a value out of its domain.
        DataError: a reflective word that cannot be counted.
    """

    pairing: Literal["same", "different", "any"] = "same"
    ratio: float | None = 1.0
    limits: Mapping[str, Limits] = field(default_factory=dict)
    reflective: tuple[str, ...] = SCRIPT_WORDS
    unverified: Literal["drop", "keep"] = "drop"
    think: str = WORDS["think"]
    no_think: str = WORDS["no_think"]
    validation: float = 0.0
    test: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("pairing", self.pairing, PAIRINGS)
        _one_of("unverified", self.unverified, ("drop", "keep"))
        ReflectiveWords(self.reflective)
        if self.ratio is not None and not (_is_number(self.ratio) and self.ratio > 0):
            raise ConfigError(f"ratio is a number of no_think rows per think row above 0, or None; got {self.ratio!r}")
        for name in ("validation", "test"):
            if not (_is_number(getattr(self, name)) and 0 <= getattr(self, name) < 1):
                raise ConfigError(f"{name} is a share from 0 to below 1, got {getattr(self, name)!r}")
        if self.validation + self.test >= 1:
            raise ConfigError(f"validation {self.validation} and test {self.test} leave nothing to train on")
        words = (self.think, self.no_think)
        if not all(word.strip() == word and word for word in words) or self.think == self.no_think:
            raise ConfigError(f"the control words must be two different texts without white space around: {words!r}")
        for domain, limits in self.limits.items():
            for limit in (limits.think, limits.no_think):
                if limit is not None and limit < 1:
                    raise ConfigError(f"a length limit of {domain!r} must be at least 1, got {limit}")

    def limit(self, domain: str, mode: Mode) -> int | None:
        """Return the length limit of a reply."""
        limits = self.limits.get(domain, self.limits.get(EVERYWHERE))
        return None if limits is None else limits.of(mode)

    def word(self, mode: Mode) -> str:
        """Return the control word of ``mode``."""
        return self.think if mode == "think" else self.no_think

    def check_domains(self, domains: Iterable[str]) -> None:
        """Refuse limits of domains that do not occur: they would limit nothing."""
        known = set(domains)
        for domain in self.limits:
            if domain != EVERYWHERE and domain not in known:
                raise ConfigError(f"limits: no target is of the domain {domain!r}{closest(domain, known)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"unknown {name} {value!r}{closest(str(value), known)}")
