"""What mini-recurrent answers, by hops, length of the context and number of recurrent steps.

python scripts/minis/measure_hops.py mini-recurrent --steps 1 2 4 8 16 32
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import torch
from feed import IGNORED, Document, batches, question_of
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from routelab.data.mini_world import MiniWorld
from routelab.hosts.minis import load_mini

#: Sentences of a paragraph that, with its question, has about so many tokens.
SENTENCES = {64: 4, 128: 10, 256: 21, 512: 44, 1024: 92}


def encode_hops(rows: Sequence[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> list[Document]:
    """Rows as chats. Answers begin with a space, so that a name has the same tokens as inside a paragraph."""
    prompts = [f"<|im_start|>user\n{question_of(row)}<|im_end|>\n<|im_start|>assistant\n" for row in rows]
    replies = [f" {row['answer']}<|im_end|>" for row in rows]
    encoded = zip(tokenizer(prompts)["input_ids"], tokenizer(replies)["input_ids"], strict=True)
    return [(prompt + reply, [IGNORED] * len(prompt) + reply) for prompt, reply in encoded]


@torch.no_grad()
def answered(model: PreTrainedModel, documents: Sequence[Document], pad: int, num_steps: int) -> float:
    """Share of replies of which every token is the likeliest: those that greedy decoding gives whole."""
    right = 0
    for batch in batches([(document, 1.0) for document in documents], pad):
        for ids, labels in zip(batch.input_ids.split(25), batch.labels.split(25), strict=True):
            said = model(input_ids=ids, num_steps=num_steps, use_cache=False).logits[:, :-1].argmax(-1)
            wanted = labels[:, 1:]
            right += int(((said == wanted) | (wanted == IGNORED)).all(-1).sum())
    return right / len(documents)


def measure_hops(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    split: str,
    n: int,
    tokens: Sequence[int] = (64, 256),
    steps: Sequence[int] = (8,),
) -> dict[str, float]:
    """Accuracy on ``n`` held-out questions of either number of hops for every length and number of steps."""
    training = model.training
    model.eval()
    found = {}
    for length in tokens:
        for hops in (1, 2):
            rows = MiniWorld(seed=0).paragraphs(split, n, sentences=SENTENCES[length], hops=hops)
            documents = encode_hops(rows, tokenizer)
            for count in steps:
                found[f"hops_{hops}_tokens_{length}_steps_{count}"] = answered(
                    model, documents, tokenizer.pad_token_id, count
                )
    model.train(training)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a shipped mini or a directory")
    parser.add_argument("--split", default="test")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--steps", type=int, nargs="+", default=[32])
    args = parser.parse_args()
    model, tokenizer = load_mini(args.name, dtype=torch.float32)
    found = measure_hops(model, tokenizer, split=args.split, n=args.n, tokens=args.tokens, steps=args.steps)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
