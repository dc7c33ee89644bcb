"""Attention-aware routing against routing-only fine-tuning on the shipped mini host, in one file.

python examples/aar.py [steps] [problems]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import routelab
from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.evaluate import evaluate, paired_bootstrap, read_scores
from routelab.train import TrainConfig, train


def main(steps: int = 60, problems: int = 100) -> None:
    rows = to_messages(MiniWorld().arithmetic("train", 1000, draw="example"), "arithmetic")
    settings = TrainConfig(steps=steps, batch_size=16, max_length=256, learning_rate=3e-3)
    folder = Path(tempfile.mkdtemp(prefix="routelab-"))

    for name, config in {"aar": routelab.AARConfig(window=40), "control": routelab.RoutingOnlyConfig()}.items():
        model, tokenizer = routelab.load_host("mini-moe", dtype=torch.float32)
        routelab.attach(model, config)
        print(routelab.attached(model))
        trained = train(model, tokenizer, rows, settings, seed=0, output_dir=folder / name)
        print(
            f"  loss {trained.loss_first:.3f} -> {trained.loss_last:.3f}, frozen bits equal: {trained.frozen_identical}"
        )
        records = folder / f"{name}.jsonl"
        result = evaluate(model, tokenizer, "mini-arithmetic", limit=problems, records_path=records)
        print(f"  accuracy {result['accuracy']:.1%}, {result['length']['tokens']['mean']:.0f} tokens an answer")
        routelab.save(model, folder / name / "routing")  # later: routelab.load(folder / name / "routing")

    difference = paired_bootstrap(read_scores(folder / "aar.jsonl"), read_scores(folder / "control.jsonl"))
    print(f"aar - control: {difference.mean:+.1%}, 95% interval {difference.low:+.1%} to {difference.high:+.1%}")
    print(f"records and routing: {folder}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
