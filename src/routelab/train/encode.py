"""Chat rows to token ids and labels, for any chat template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from routelab.errors import DataError, TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from routelab.train.config import TrainConfig

IGNORED = -100
_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass(frozen=True)
class Document:
    """One encoded row: ``input_ids`` and ``labels``, both int32 ``[length]``; ``IGNORED`` where the loss looks away.

    The first label is always ``IGNORED``: no position predicts it, and in a packed row the last token of the document
    before would. ``task_ids``, int32 ``[length]``, are places in :attr:`EncodedRows.tasks`, ``IGNORED`` for no task.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    task_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def prompt(self) -> int:
        """Number of tokens before the first labelled one."""
        return int((self.labels != IGNORED).argmax())

    @property
    def labelled(self) -> int:
        """Number of tokens that the loss sees."""
        return int((self.labels != IGNORED).sum())


@dataclass(frozen=True)
class EncodedRows:
    """Documents to train on.

    Attributes:
        counts: ``rows`` given; those dropped, by reason (``too_long``, ``no_labels``); those ``cut``, which stay.
        settings: the fields of the configuration that decided all this.
        tasks: the names of the rows' tasks, in order of first appearance.
    """

    documents: tuple[Document, ...]
    counts: Mapping[str, int]
    settings: Mapping[str, Any]
    tasks: tuple[str, ...] = ()


def encoding_settings(config: TrainConfig) -> dict[str, Any]:
    """Return the fields of a configuration that encoding depends on."""
    return {name: getattr(config, name) for name in ("max_length", "overlong", "assistant_only")}


def encode_rows(
    tokenizer: PreTrainedTokenizerBase, rows: Iterable[Mapping[str, Any]], config: TrainConfig
) -> EncodedRows:
    """Render every row's ``messages`` with the tokenizer's chat template and label the assistant's turns.

    A row's ``task``, where it has one, is the name of the task of all its tokens.

    Raises:
        DataError: there are no rows, a row has no ``messages``, its ``task`` is not a name, or the template cannot
            render it.
        TrainingError: the tokenizer has no chat template or gives no character offsets; the template renders a turn
            differently once more turns follow; a row is longer than ``max_length`` under ``overlong="refuse"``; no
            labelled token is left.
    """
    encoder = ChatEncoder(tokenizer, assistant_only=config.assistant_only)
    counts = {"rows": 0, "too_long": 0, "no_labels": 0, "cut": 0}
    documents = []
    tasks: dict[str, int] = {}
    for number, row in enumerate(rows):
        counts["rows"] += 1
        name = f"row {row.get('id', number)!r}"
        if not row.get("messages"):
            raise DataError(f"{name} has no 'messages'; it has {sorted(row) or 'nothing'}")
        document = encoder(row["messages"], name)
        if len(document) > config.max_length:
            if config.overlong == "refuse":
                raise TrainingError(
                    f"{name} has {len(document)} tokens, max_length is {config.max_length}; raise max_length, or set "
                    "overlong to 'drop' or 'cut'"
                )
            if config.overlong == "drop":
                counts["too_long"] += 1
                continue
            document = Document(document.input_ids[: config.max_length], document.labels[: config.max_length])
            counts["cut"] += 1
        if not document.labelled:
            counts["no_labels"] += 1
            continue
        task = row.get("task")
        if task is not None:
            if not isinstance(task, str) or not task:
                raise DataError(f"{name} has the task {task!r}; a task is a name")
            number_of = tasks.setdefault(task, len(tasks))
            document = replace(document, task_ids=np.full(len(document), number_of, dtype=np.int32))
        documents.append(document)
    if not counts["rows"]:
        raise DataError("there are no rows to train on")
    if not documents:
        raise TrainingError(
            f"no labelled token is left to train on: of {counts['rows']} rows {counts['too_long']} are longer than "
            f"max_length={config.max_length} and {counts['no_labels']} have no assistant token within it"
        )
    return EncodedRows(tuple(documents), counts, encoding_settings(config), tuple(tasks))


class ChatEncoder:
    """Encodes chats with one tokenizer.

    Where the template marks the assistant's turns (``{% generation %}``) the marks decide. Where it does not, turn *i*
    is what rendering ``messages[:i+1]`` adds to rendering ``messages[:i]`` with the generation prompt, without
    trailing white space: the reply and its end-of-turn token. Both renderings must be prefixes of the whole chat.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, assistant_only: bool) -> None:
        if not tokenizer.chat_template:
            raise TrainingError(
                f"the tokenizer {tokenizer.name_or_path!r} has no chat template; set tokenizer.chat_template"
            )
        if not tokenizer.is_fast:
            raise TrainingError(
                f"the tokenizer {tokenizer.name_or_path!r} is a slow one and cannot say which characters a token "
                "covers; load the fast one"
            )
        self.tokenizer = tokenizer
        self.assistant_only = assistant_only
        self.marked = bool(_GENERATION_MARK.search(tokenizer.get_chat_template()))

    def __call__(self, messages: Sequence[Mapping[str, str]], name: str = "a chat") -> Document:
        """Return the document of one chat; ``name`` is what errors call it."""
        if self.assistant_only and self.marked:
            marked = self._template(messages, name, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            return _document(marked["input_ids"], np.asarray(marked["assistant_masks"], dtype=bool))
        text = self._template(messages, name, tokenize=False)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        if not self.assistant_only:
            return _document(encoded["input_ids"], np.ones(len(encoded["input_ids"]), dtype=bool))
        starts, ends = np.asarray(encoded["offset_mapping"]).reshape(-1, 2).T
        inside = np.zeros(len(starts), dtype=bool)
        for start, end in self._spans(text, messages, name):
            inside |= (starts >= start) & (ends <= end) & (ends > starts)
        return _document(encoded["input_ids"], inside)

    def _spans(self, text: str, messages: Sequence[Mapping[str, str]], name: str) -> Iterator[tuple[int, int]]:
        """Yield the characters of each assistant turn in ``text``, found by rendering prefixes of the chat."""
        for i, message in enumerate(messages):
            if message.get("role") != "assistant":
                continue
            before = self._template(messages[:i], name, tokenize=False, add_generation_prompt=True)
            after = self._template(messages[: i + 1], name, tokenize=False)
            if not (after.startswith(before) and text.startswith(after)):
                raise TrainingError(
                    f"{name}: the chat template of {self.tokenizer.name_or_path!r} renders turn {i} differently once "
                    "its reply or later turns follow, so the assistant's part cannot be told from rendered prefixes; "
                    "mark it with {% generation %} in the template"
                )
            yield len(before), len(before) + len(after[len(before) :].rstrip())

    def _template(self, messages: Sequence[Mapping[str, str]], name: str, **options: Any) -> Any:
        try:
            return self.tokenizer.apply_chat_template(list(messages), **options)
        except Exception as error:  # a template may raise anything it likes
            raise DataError(f"{name}: the chat template cannot render its messages: {error}") from error


def _document(input_ids: Sequence[int], labelled: np.ndarray) -> Document:
    ids = np.asarray(input_ids, dtype=np.int32)
    labels = np.where(labelled, ids, np.int32(IGNORED))
    labels[:1] = IGNORED
    return Document(ids, labels)
