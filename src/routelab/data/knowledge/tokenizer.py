"""A tokenizer whose tokens are the symbols of a knowledge: one per template word, one per entity."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, Protocol

from routelab.data.knowledge.trie import BEGIN, END
from routelab.errors import CheckpointError, DataError

FILE = "knowledge_tokenizer.json"
_FORCED = re.compile(r"\[((?:[^\]]|\]\])+)\]")  # within brackets a closing one is doubled
_CLOSE = re.compile(r"[.,;:!?)…]+|[-'’]\w.*")  # what follows the symbol before it without a space


class Alphabet(Protocol):
    """What a tokenizer needs of a knowledge: its template words, and the symbols of its entities."""

    @property
    def words(self) -> AbstractSet[str]: ...
    @property
    def names(self) -> AbstractSet[str]: ...


class _Saved(NamedTuple):
    words: frozenset[str]
    names: frozenset[str]


class KnowledgeTokenizer:
    """Token 0 begins a sentence, 1 ends it; then come ``knowledge.vocabulary``'s template words and entities.

    Text is read from left to right, the longest word or name first, and each ends where a word of the text does. Of a
    word and a name that read alike it is the word. ``[name]`` reads a name always (``]`` within it is doubled). Three
    kinds of name are read only so: those that template words could spell, those that contain a bracket, and those that
    begin or end with white space.
    """

    bos_id, eos_id = 0, 1

    def __init__(self, knowledge: Alphabet) -> None:
        self._words = frozenset(knowledge.words)
        self.symbols = (BEGIN, END, *sorted(knowledge.words), *sorted(knowledge.names))
        self._ids = {symbol: index for index, symbol in enumerate(self.symbols)}
        self._names = {_name(symbol): self._ids[symbol] for symbol in knowledge.names}
        plain = {name: index for name, index in self._names.items() if not self._only_forced(name)}
        self._plain = {**plain, **{word: self._ids[word] for word in self._words}}
        self._longest = max(map(len, self._plain), default=0)

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def encode_sentence(self, words: Sequence[str]) -> list[int]:
        """Return the tokens of a whole sentence (``Sentence.words``), from ``bos_id`` to ``eos_id``.

        Raises:
            DataError: a symbol that is not of this knowledge.
        """
        for word in words:
            if word not in self._ids:
                raise DataError(f"{word!r} is no symbol of this knowledge{_nearest(word, self._ids)}")
        return [self.bos_id, *(self._ids[word] for word in words), self.eos_id]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of the beginning of a sentence, as a user types it: ``bos_id`` first, no ``eos_id``.

        Raises:
            DataError: a word that is neither of a template nor of a name, with the nearest that is.
        """
        ids, at = [self.bos_id], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
            else:
                index, at = self._read(text, at)
                ids.append(index)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ``ids``, without beginning and end.

        Names are in brackets only where :meth:`encode` would otherwise read something else, so that for the beginning
        of any sentence ``encode(decode(ids)) == ids``.
        """
        kept = [index for index in ids if index not in (self.bos_id, self.eos_id)]
        text = ""
        for index in kept:
            symbol = self.symbols[index]
            shown = _name(symbol) if self._plain.get(_name(symbol)) == index else self._exact(index)
            text += shown if not text or _CLOSE.fullmatch(shown) else f" {shown}"
        try:
            same = self.encode(text)[1:] == kept
        except DataError:
            same = False
        return text if same else " ".join(map(self._exact, kept))

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer into an existing directory, as JSON."""
        path = Path(folder) / FILE
        temporary = path.with_name(path.name + ".tmp")
        words = sorted(self._words)
        values = {"words": words, "names": self.symbols[2 + len(words) :]}
        temporary.write_text(json.dumps(values, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        os.replace(temporary, path)

    @classmethod
    def load(cls, folder: str | Path) -> KnowledgeTokenizer:
        """Read what :meth:`save` wrote.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        path = Path(folder) / FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            words, names = values["words"], values["names"]
            whole = (
                isinstance(words, list) and isinstance(names, list) and all(isinstance(s, str) for s in words + names)
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} is missing or damaged: {error}") from error
        if not whole or len({BEGIN, END, *words, *names}) < 2 + len(words) + len(names):
            raise CheckpointError(f"{path} is damaged: words and names are lists of different texts")
        return cls(_Saved(frozenset(words), frozenset(names)))

    def _exact(self, index: int) -> str:
        symbol = self.symbols[index]
        return symbol if symbol in self._words else f"[{_name(symbol).replace(']', ']]')}]"

    def _only_forced(self, name: str) -> bool:
        """Whether plain text must not read ``name``: then what :meth:`_exact` writes has one reading."""
        *head, last = name.split(" ")
        spelled = name in self._words
        if head and all(part in self._words for part in head):
            spelled = any(word.startswith(last) and _ends(word, len(last)) for word in self._words)
        return spelled or "[" in name or "]" in name or name != name.strip()

    def _read(self, text: str, at: int) -> tuple[int, int]:
        """Return the token that begins at ``text[at]``, and where it ends."""
        forced = _FORCED.match(text, at)
        if forced:
            name = forced[1].replace("]]", "]")
            if name not in self._names:
                raise DataError(f"{forced[0]!r} asks for a name that is not there{_nearest(name, self._names)}")
            return self._names[name], forced.end()
        for end in range(min(len(text), at + self._longest), at, -1):
            index = self._plain.get(text[at:end])
            if index is not None and _ends(text, end):
                return index, end
        word = text[at:].split(maxsplit=1)[0]
        raise DataError(f"{word!r} in {text!r} begins no template word and no name{_nearest(word, self._plain)}")


def _name(symbol: str) -> str:
    """The name of an entity's symbol: without the brackets that ``Knowledge.symbol`` gave it."""
    return symbol[1:-1] if symbol.startswith("[") and symbol.endswith("]") else symbol


def _ends(text: str, end: int) -> bool:
    """Whether a word of ``text`` ends before ``text[end]``."""
    return end == len(text) or not (text[end - 1].isalnum() and text[end].isalnum())


def _nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest few only, for there are thousands of names."""
    near = get_close_matches(word, list(known), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
