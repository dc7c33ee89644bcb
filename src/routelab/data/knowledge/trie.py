"""Which symbols may follow which prefix, exactly: V(w) of arXiv 2606.14398."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

END = "</s>"


class Trie:
    """The prefixes of a set of sentences. V is looked up by bisection in the sorted sentences: exact, and compact.

    The end of a sentence is the symbol :data:`END`.
    """

    def __init__(self, sentences: Iterable[Sequence[str]]) -> None:
        distinct = {tuple(sentence) for sentence in sentences}
        self.symbols = (END, *sorted({symbol for sentence in distinct for symbol in sentence}))
        self._ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        self._sorted = sorted((*(self._ids[symbol] for symbol in sentence), 0) for sentence in distinct)

    def __len__(self) -> int:
        """The number of different sentences."""
        return len(self._sorted)

    def __contains__(self, sentence: Sequence[str]) -> bool:
        ids = self._known(sentence)
        if ids is None:
            return False
        at = bisect_left(self._sorted, (*ids, 0))
        return at < len(self._sorted) and self._sorted[at] == (*ids, 0)

    def valid_next(self, prefix: Sequence[str]) -> frozenset[str]:
        """Return V(prefix); empty where no sentence begins like this."""
        ids = self._known(prefix)
        if ids is None:
            return frozenset()
        low, high = self._range(ids, 0, len(self._sorted))
        return frozenset(self.symbols[child] for child, _, _ in self._children(ids, low, high))

    def walk(self) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
        """Yield every prefix, the empty one first, with V of it."""
        open_: list[tuple[tuple[int, ...], int, int]] = [((), 0, len(self._sorted))]
        while open_:
            ids, low, high = open_.pop()
            children = list(self._children(ids, low, high))
            yield tuple(self.symbols[i] for i in ids), frozenset(self.symbols[child] for child, _, _ in children)
            open_ += [((*ids, child), first, end) for child, first, end in reversed(children) if child]

    def _known(self, symbols: Sequence[str]) -> tuple[int, ...] | None:
        if any(symbol not in self._ids or symbol == END for symbol in symbols):
            return None
        return tuple(self._ids[symbol] for symbol in symbols)

    def _range(self, ids: tuple[int, ...], low: int, high: int) -> tuple[int, int]:
        above = (*ids, len(self.symbols))
        return bisect_left(self._sorted, ids, low, high), bisect_left(self._sorted, above, low, high)

    def _children(self, ids: tuple[int, ...], low: int, high: int) -> Iterator[tuple[int, int, int]]:
        while low < high:
            child = self._sorted[low][len(ids)]
            end = bisect_left(self._sorted, (*ids, child + 1), low, high)
            yield child, low, end
            low = end
