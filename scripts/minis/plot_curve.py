"""Draw the training curve of a mini from its JSONL log.

python scripts/minis/plot_curve.py scratch/mini-moe/log.jsonl docs/figures/mini-moe-curve.png
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

CURVES = {
    "steps_2": ("2-step problems", "o-"),
    "steps_4": ("4-step problems", "s-"),
    "facts": ("facts, held-out wording", "^-"),
    "hops_1_tokens_64_steps_8": ("one hop, 64 tokens", "o-"),
    "hops_2_tokens_64_steps_8": ("two hops, 64 tokens", "s-"),
    "hops_1_tokens_256_steps_8": ("one hop, 256 tokens", "^-"),
    "hops_2_tokens_256_steps_8": ("two hops, 256 tokens", "v-"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("figure", type=Path)
    args = parser.parse_args()
    # A run that went on from its checkpoint has some steps twice; the later ones count.
    by_step = {r["step"]: r for r in map(json.loads, args.log.read_text().splitlines())}
    records = [by_step[step] for step in sorted(by_step)]
    trained = [r for r in records if "loss" in r]
    measured = [r for r in records if CURVES.keys() & r.keys()]
    curves = {key: curve for key, curve in CURVES.items() if key in measured[-1]}

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    left.plot([r["tokens"] / 1e6 for r in trained], [r["loss"] for r in trained], lw=0.8)
    left.set(xlabel="million tokens", ylabel="training loss (labelled tokens)", yscale="log")
    for key, (label, style) in curves.items():
        right.plot([r["tokens"] / 1e6 for r in measured], [r[key] for r in measured], style, ms=3, label=label)
    if "facts" in curves:
        right.axhline(0.25, color="grey", lw=0.8, ls=":", label="facts by chance")
    right.set(xlabel="million tokens", ylabel="accuracy on held-out problems", ylim=(0, 1))
    right.legend(frameon=False)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    args.figure.parent.mkdir(parents=True, exist_ok=True)
    temporary = args.figure.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=150)
    os.replace(temporary, args.figure)


if __name__ == "__main__":
    main()
