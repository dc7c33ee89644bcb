"""The rule of the control words, on plain text.

**A word.** Reading from left to right, at every place the longest control word that starts there and *stands alone* is
found, and reading goes on behind it. A word stands alone when the character before it is neither a word character
(``A-Z a-z 0-9 _``) nor ``/`` nor ``<``, and what follows it is neither a word character nor ``/`` nor ``-`` nor a dot
with a word character behind it. So ``</think>``, ``/think_hard`` and ``src/no_think/a.py`` hold none, while the word in
``请直接回答/no_think`` and in ``/think.`` at the end of a sentence does stand alone.

**Where it counts.** With ``scan="prompt"``, in what the model did not write: the user and system spans of the chat; in
the whole text where there are no headers. With ``scan="paper"``, before the last assistant header, whoever wrote it; in
the whole text where there is no such header (arXiv 2604.27201, appendix A.6).

**Which wins.** The last word that counts, with one addition for templates that answer ``enable_thinking=False`` by an
empty ``<think></think>`` block behind the last assistant header (Qwen3's): the block means no_think where the last
turn, the text between the last two assistant spans, holds no word of its own. If the text ends with the block and the
last turn's word says think, the prompt asks for both modes: :class:`ModeError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from routelab.errors import ModeError
from routelab.hosts.chat_spans import Headers, Span
from routelab.methods.pathlock.config import PathLockConfig

_BEFORE = r"(?<![A-Za-z0-9_/<])"
_AFTER = r"(?![A-Za-z0-9_/\-]|\.[A-Za-z0-9_])"
_EMPTY_BLOCK = re.compile(r"\s*<think>\s*</think>\s*")


@dataclass(frozen=True)
class Word:
    """A control word that stands alone, where it stands, and whether it counts."""

    start: int
    end: int
    mode: int
    counts: bool


@dataclass(frozen=True)
class Decision:
    """How one text was read.

    Attributes:
        spans: who wrote what.
        header: where the last assistant span begins, or None.
        words: every control word that stands alone.
        empty_block: an empty think block follows the last assistant header.
        winner: the word that decided, or None.
        mode: 0 no_think, 1 think, or None where nothing decided.
    """

    spans: tuple[Span, ...]
    header: int | None
    words: tuple[Word, ...]
    empty_block: bool
    winner: Word | None
    mode: int | None


class ControlRule:
    """The rule above for one configuration and one set of headers (None: texts without turns)."""

    def __init__(self, config: PathLockConfig, headers: Headers | None) -> None:
        self.words, self.scan, self.headers = config.words, config.scan, headers
        longest_first = sorted(config.words, key=len, reverse=True)
        self.pattern = re.compile(f"{_BEFORE}(?:{'|'.join(map(re.escape, longest_first))}){_AFTER}")

    def decide(self, text: str) -> Decision:
        """Return how ``text`` is read.

        Raises:
            ModeError: its last turn asks for think by a word, and its end for no_think by an empty think block.
        """
        spans = [Span(0, len(text), "user")] if self.headers is None else self.headers.spans(text)
        # The first span stands before the first header, so it has none of its own.
        header = next((span.start for span in reversed(spans[1:]) if span.role == "assistant"), None)
        words = tuple(
            Word(found.start(), found.end(), self.words.index(found[0]), self._counts(found.span(), spans, header))
            for found in self.pattern.finditer(text)
        )
        counting = [word for word in words if word.counts]
        winner = counting[-1] if counting else None
        block = None if header is None else _EMPTY_BLOCK.match(text, header)
        if block is None:
            return Decision(tuple(spans), header, words, False, winner, None if winner is None else winner.mode)
        assert header is not None
        own = winner is not None and winner.start >= _last_turn(spans, header)
        if own and winner is not None and winner.mode == 1 and block.end() == len(text):
            raise ModeError(
                f"the prompt asks for both modes: its last turn says {self.words[1]!r}, and it ends with an empty "
                f"think block, which means {self.words[0]!r} (enable_thinking=False); leave one of them out"
            )
        if not own:
            winner = None
        return Decision(tuple(spans), header, words, True, winner, 0 if winner is None else winner.mode)

    def _counts(self, place: tuple[int, int], spans: list[Span], header: int | None) -> bool:
        if self.scan == "paper":
            return header is None or place[1] <= header
        return any(span.role == "user" and span.start <= place[0] and place[1] <= span.end for span in spans)


def _last_turn(spans: list[Span], header: int) -> int:
    """Return where the text between the last two assistant spans begins."""
    earlier = [span.end for span in spans if span.role == "assistant" and span.start < header]
    return max(earlier, default=0)
