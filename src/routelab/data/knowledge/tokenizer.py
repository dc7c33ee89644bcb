"""A tokenizer whose tokens are the symbols of a knowledge: one per template word, one per entity name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from routelab.data.knowledge.language import Knowledge
from routelab.data.knowledge.trie import END
from routelab.errors import CheckpointError, DataError, closest

BEGIN = "<s>"
FILE = "knowledge_tokenizer.json"
_NEXT = re.compile(r"['’]s\b|\w+(?:[-'’]\w+)*|[^\w\s]")
_TIGHT = frozenset(".,;:!?)")
_POSSESSIVE = frozenset({"'s", "’s"})


class KnowledgeTokenizer:
    """Token 0 begins a sentence, token 1 ends it, then come the template words and the names.

    In text the longest name or word that starts at a place and ends at the end of a word is taken; a word wins over a
    name of the same letters, which ``[name]`` asks for.
    """

    bos_id, eos_id = 0, 1

    def __init__(self, words: Iterable[str], names: Iterable[str]) -> None:
        self.words, self.names = tuple(words), tuple(names)
        self.symbols = (BEGIN, END, *self.words, *self.names)
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols)}
        self._plain = {name[1:-1] if self._bracketed(name) else name: self.ids[name] for name in self.names}
        self._longest = max(map(len, self._plain), default=0)

    @classmethod
    def of(cls, knowledge: Knowledge) -> KnowledgeTokenizer:
        """Return the tokenizer of a knowledge's vocabulary."""
        return cls(sorted(knowledge.words), sorted(knowledge.names))

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def encode_sentence(self, symbols: Sequence[str]) -> list[int]:
        """Return ``<s>``, the symbols, and nothing after them."""
        return [self.bos_id, *(self.ids[symbol] for symbol in symbols)]

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prefix in words, with ``<s>`` before them.

        Raises:
            DataError: a word that is neither in a template nor a name.
        """
        ids, at = [self.bos_id], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            found, at = self._take(text, at)
            ids.append(found)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text, without ``<s>`` and ``</s>``; punctuation is set close to what it follows."""
        text = ""
        for i in ids:
            if i in (self.bos_id, self.eos_id):
                continue
            symbol = self.symbols[i]
            close = not text or symbol in _TIGHT or symbol in _POSSESSIVE
            text += symbol if close else f" {symbol}"
        return text

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer into a directory."""
        path = Path(folder) / FILE
        temporary = path.with_name(path.name + ".tmp")
        values = {"words": self.words, "names": self.names}
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
            return cls(values["words"], values["names"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} is missing or damaged: {error}") from error

    def _bracketed(self, name: str) -> bool:
        return name.startswith("[") and name.endswith("]") and name[1:-1] in self.words

    def _take(self, text: str, at: int) -> tuple[int, int]:
        if text[at] == "[":
            end = text.find("]", at)
            if end > 0 and text[at + 1 : end] in self._plain:
                return self._plain[text[at + 1 : end]], end + 1
        match = _NEXT.match(text, at)
        word = match[0] if match else text[at]
        longest = next((n for n in range(self._longest, 0, -1) if self._is_name(text, at, at + n)), 0)
        if longest > len(word) or (longest and word not in self.words):
            return self._plain[text[at : at + longest]], at + longest
        if word in self.words:
            return self.ids[word], at + len(word)
        raise DataError(f"{word!r} in {text!r} is no word of a template and no name{closest(word, self._plain)}")

    def _is_name(self, text: str, start: int, end: int) -> bool:
        if end > len(text) or text[start:end] not in self._plain:
            return False
        inside = text[end - 1].isalnum()
        return not (inside and end < len(text) and (text[end].isalnum() or text[end] == "_"))
