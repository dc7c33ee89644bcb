"""The training stream of mini-moe and mini-dense.

Step *s* trains on a pure function of the seed and *s*, so a run can resume.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from routelab.data.mini_world import MiniWorld
from routelab.data.mini_world.splits import seeded

# Share of documents by kind. Two steps are common and five are rare: the host shall leave something to learn.
MIXTURE = {
    "1-step": 0.20, "2-step": 0.36, "3-step": 0.08, "4-step": 0.03, "5-step": 0.01, "aside": 0.04,
    "facts": 0.25, "paragraphs": 0.03,
}  # fmt: skip
FACT_WEIGHT = 4.0  # a fact has two labelled tokens, a worked solution about twenty-five
IGNORED = -100
Document = tuple[list[int], list[int]]  # token ids, labels


def question_of(row: dict[str, Any]) -> str:
    return f"{row['context']}\n{row['question']}" if "context" in row else row["question"]


def encode(rows: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> list[Document]:
    """Rows as ChatML documents (the tokenizer's chat template, spelled out for speed); only the reply has labels."""
    prompts = [f"<|im_start|>user\n{question_of(r)}<|im_end|>\n<|im_start|>assistant\n" for r in rows]
    replies = [f"{r['answer']}<|im_end|>" for r in rows]
    end = tokenizer("\n")["input_ids"]
    documents = []
    for prompt, reply in zip(tokenizer(prompts)["input_ids"], tokenizer(replies)["input_ids"], strict=True):
        labels = [IGNORED] * len(prompt) + reply + [IGNORED] * len(end)
        documents.append((prompt + reply + end, labels))
    return documents


@dataclass(frozen=True)
class Batch:
    """``input_ids``, ``labels`` ``[rows, length]`` int64, padded at the end; ``weights`` ``[rows]`` float32."""

    input_ids: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor


class Feed:
    """One document a row, rows of like length together: causal attention then needs no mask and little padding."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, seed: int, documents: int) -> None:
        self.tokenizer, self.seed, self.count = tokenizer, seed, documents
        self.world = MiniWorld(seed=0)
        self.facts = encode(self.world.facts("train"), tokenizer)

    def documents(self, step: int) -> list[tuple[Document, float]]:
        """Weighted documents in the proportions of :data:`MIXTURE`."""
        rng = seeded("feed", self.seed, step)
        kinds = Counter(rng.choices(list(MIXTURE), list(MIXTURE.values()), k=self.count))
        draw = f"{self.seed}.{step}"
        rows: list[dict[str, Any]] = []
        for steps in range(1, 6):
            rows += self.world.arithmetic("train", kinds[f"{steps}-step"], steps=steps, draw=draw)
        rows += self.world.arithmetic("train", kinds["aside"], steps=(2, 3), distractors=1, draw=draw)
        rows += self.world.paragraphs("train", kinds["paragraphs"], sentences=(2, 6), draw=draw)
        facts = rng.sample(self.facts, kinds["facts"])
        return [(d, 1.0) for d in encode(rows, self.tokenizer)] + [(d, FACT_WEIGHT) for d in facts]


def batches(documents: list[tuple[Document, float]], pad: int) -> list[Batch]:
    """Weighted documents in parts: in each, the longest is at most 1.35 times the shortest."""
    parts: list[list[tuple[Document, float]]] = []
    for document in sorted(documents, key=lambda d: len(d[0][0])):
        if not parts or len(document[0][0]) > 1.35 * len(parts[-1][0][0][0]):
            parts.append([])
        parts[-1].append(document)
    return [_padded(part, pad) for part in parts]


def _padded(documents: list[tuple[Document, float]], pad: int) -> Batch:
    shape = (len(documents), max(len(d[0][0]) for d in documents))
    ids = torch.full(shape, pad)
    labels = torch.full(shape, IGNORED)
    for row, ((tokens, targets), _) in enumerate(documents):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, : len(targets)] = torch.tensor(targets)
    return Batch(ids, labels, torch.tensor([weight for _, weight in documents]))
