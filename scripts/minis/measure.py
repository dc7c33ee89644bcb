"""What a mini can do: greedy accuracy on held-out problems and paragraphs, four-way recall of facts.

python scripts/minis/measure.py mini-moe
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from feed import encode, question_of
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from routelab.data.mini_world import MiniWorld
from routelab.hosts.minis import load_mini


@torch.no_grad()
def replies(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]], new_tokens: int
) -> list[str]:
    """Greedy replies to ``rows``, in batches of 100."""
    texts = []
    for start in range(0, len(rows), 100):
        chats = [[{"role": "user", "content": question_of(r)}] for r in rows[start : start + 100]]
        inputs = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        out = model.generate(**inputs, max_new_tokens=new_tokens, do_sample=False)
        texts += tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


def solved(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]]) -> float:
    """Share of problems whose reply ends in ``#### gold``."""
    said = replies(model, tokenizer, rows, 16 + 12 * max(r["steps"] for r in rows))
    return sum(s.strip().endswith(f"#### {r['gold']}") for s, r in zip(said, rows, strict=True)) / len(rows)


def answered(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]]) -> float:
    """Share of paragraph questions whose whole reply is the answer."""
    said = replies(model, tokenizer, rows, 12)
    return sum(s.strip() == r["gold"] for s, r in zip(said, rows, strict=True)) / len(rows)


@torch.no_grad()
def recalled(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]]) -> float:
    """Share of facts whose right choice has the greatest log-likelihood per token as the reply."""
    right = 0
    for row in rows:
        options = encode([{**row, "answer": c} for c in row["choices"]], tokenizer)
        width = max(len(ids) for ids, _ in options)
        ids = torch.full((len(options), width), tokenizer.pad_token_id)
        labels = torch.full((len(options), width), -100)
        for i, (tokens, targets) in enumerate(options):
            ids[i, : len(tokens)] = torch.tensor(tokens)
            labels[i, : len(targets)] = torch.tensor(targets)
        logits = model(input_ids=ids).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], reduction="none")
        score = loss.sum(1) / (labels[:, 1:] >= 0).sum(1)
        right += int(score.argmin()) == row["gold"]
    return right / len(rows)


def measure(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, split: str, n: int, steps: tuple[int, ...] = (2, 4)
) -> dict[str, float]:
    """Accuracy by number of steps, fact recall in the wording of ``split``, and paragraphs by hops."""
    world = MiniWorld(seed=0)
    training = model.training
    model.eval()
    result = {f"steps_{k}": solved(model, tokenizer, world.arithmetic(split, n, steps=k)) for k in steps}
    result["facts"] = recalled(model, tokenizer, world.facts(split, n))
    for hops in (1, 2):
        rows = world.paragraphs(split, n, sentences=(4, 8), hops=hops)
        result[f"hops_{hops}"] = answered(model, tokenizer, rows)
    model.train(training)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a shipped mini, e.g. mini-moe")
    parser.add_argument("--split", default="test")
    parser.add_argument("--n", type=int, default=400)
    args = parser.parse_args()
    model, tokenizer = load_mini(args.name, dtype=torch.float32)
    print(json.dumps(measure(model, tokenizer, split=args.split, n=args.n, steps=(2, 3, 4, 5)), indent=2))


if __name__ == "__main__":
    main()
