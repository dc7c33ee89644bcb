"""Answers per second of processor time: this package's batched decoding against transformers' own generate.

OMP_NUM_THREADS=1 python benchmarks/generation.py [--problems 200] [--batch-sizes 16 50 100 200]

Both answer the same arithmetic problems greedily with mini-moe, in the same order of prompt lengths, in one process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.evaluate import generate_answers, get_task
from routelab.evaluate.prompts import encode

NEW_TOKENS = 160


def plain_generate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: list, batch_size: int
) -> list[str]:
    """Answers by ``model.generate`` over left-padded batches, longest prompts first, in the order of prompts."""
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    order = sorted(range(len(prompts)), key=lambda i: -len(encoded[i]))
    answers = [""] * len(prompts)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        padded = tokenizer.pad({"input_ids": [encoded[i] for i in batch]}, padding_side="left", return_tensors="pt")
        with torch.no_grad():
            out = model.generate(**padded, max_new_tokens=NEW_TOKENS, do_sample=False)
        for i, ids in zip(batch, out[:, padded["input_ids"].shape[1] :].tolist(), strict=True):
            end = ids.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in ids else len(ids)
            answers[i] = tokenizer.decode(ids[:end])
    return answers


def seconds(work: Callable[[], list]) -> tuple[float, list]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 50, 100, 200])
    arguments = parser.parse_args()
    model, tokenizer = routelab.load_host("mini-moe", dtype=torch.float32)
    prompts = [example["prompt"] for example in get_task("mini-arithmetic", limit=arguments.problems).examples]
    generate_answers(model, tokenizer, prompts[:8], max_new_tokens=4)
    print(f"{'batch':>6} {'routelab s':>11} {'tokens/s':>9} {'generate s':>11} {'ratio':>6} {'same':>5}")
    for size in arguments.batch_sizes:
        own, records = seconds(
            lambda size=size: generate_answers(model, tokenizer, prompts, max_new_tokens=NEW_TOKENS, batch_size=size)
        )
        plain, answers = seconds(lambda size=size: plain_generate(model, tokenizer, prompts, size))
        same = sum(record["output"] == answer for record, answer in zip(records, answers, strict=True))
        speed = sum(record["tokens"] for record in records) / own
        print(f"{size:6d} {own:11.2f} {speed:9.0f} {plain:11.2f} {plain / own:6.2f} {same:5d}", flush=True)


if __name__ == "__main__":
    main()
