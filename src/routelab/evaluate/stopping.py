"""Stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from routelab.errors import EvaluationError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from routelab.evaluate.decoding import Row

# A character may take several byte-level tokens, so the tail is somewhat longer than the longest stop string.
_SLACK = 8


class Stops:
    """Ends a row whose text contains one of ``strings``, and cuts the text there."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, strings: Sequence[str]) -> None:
        if not all(strings):
            raise EvaluationError(f"an empty stop string stops everything: {list(strings)!r}")
        self.tokenizer = tokenizer
        self.strings = tuple(strings)
        self.tail = max((len(string.encode()) for string in self.strings), default=0) + _SLACK

    def mark(self, rows: Sequence[Row]) -> None:
        """Finish the rows whose last tokens complete a stop string."""
        if not self.strings or not rows:
            return
        tails = self.tokenizer.batch_decode(
            [row.generated[-self.tail :] for row in rows], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        for row, tail in zip(rows, tails, strict=True):
            row.finished = any(string in tail for string in self.strings)

    def cut(self, text: str) -> str:
        """Return ``text`` up to the first stop string."""
        found = [position for string in self.strings if (position := text.find(string)) >= 0]
        return text[: min(found)] if found else text
