"""Configuration of Path-Lock experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routelab.errors import closest
from routelab.methods.base_config import require

#: Index 0 is no_think, index 1 is think, everywhere (arXiv 2604.27201, appendix A.6).
MODES = ("no_think", "think")
SCANS = ("prompt", "paper")
TRAINS = ("all", "experts")


@dataclass(frozen=True)
class PathLockConfig:
    """Path-Lock experts (arXiv 2604.27201, section 3 and appendix A.6).

    Attributes:
        think, no_think: the control words. Any text without white space, in any language.
        strict: a prompt without a control word is an error; otherwise it takes ``default_mode``, with one warning.
        default_mode: ``"no_think"`` or ``"think"``; used only where ``strict`` is off.
        scan: ``"prompt"`` looks at what the model did not write: the user and system turns. ``"paper"`` looks at
            everything before the last assistant header, earlier answers included.
        headers: what opens a user turn and what opens an assistant turn, where the tokenizer's chat template does not
            tell (see ``hosts.chat_spans``) or there is none. None finds them in the template.
        train: ``"all"`` trains every parameter, as the paper does; ``"experts"`` the two MLPs of every layer.
    """

    think: str = "/think"
    no_think: str = "/no_think"
    strict: bool = True
    default_mode: str = "no_think"
    scan: str = "prompt"
    headers: Sequence[str] | None = None
    train: str = "all"

    def __post_init__(self) -> None:
        for name in MODES:
            word = getattr(self, name)
            require(
                isinstance(word, str) and bool(word) and not any(character.isspace() for character in word),
                f"{name} must be a control word without white space, not {word!r}",
            )
        require(self.think != self.no_think, f"think and no_think are the same word, {self.think!r}")
        require(isinstance(self.strict, bool), f"strict must be true or false, not {self.strict!r}")
        for field, known in (("default_mode", MODES), ("scan", SCANS), ("train", TRAINS)):
            value = getattr(self, field)
            require(value in known, f"unknown {field} {value!r}{closest(value, known)}")
        if self.headers is not None:
            require(
                isinstance(self.headers, Sequence)
                and not isinstance(self.headers, str)
                and len(self.headers) == 2
                and all(isinstance(header, str) and header.strip() for header in self.headers)
                and self.headers[0] != self.headers[1],
                f"headers must be two different texts, the user's and the assistant's, not {self.headers!r}",
            )
            object.__setattr__(self, "headers", tuple(self.headers))

    @property
    def words(self) -> tuple[str, str]:
        """The control words by mode index."""
        return self.no_think, self.think

    @property
    def default_index(self) -> int:
        """The index of ``default_mode``."""
        return MODES.index(self.default_mode)
