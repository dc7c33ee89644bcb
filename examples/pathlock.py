"""Think and no_think in one model: path-locked experts on the shipped mini host, in one file.

python examples/pathlock.py [steps] [problems]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import mean

import torch

import routelab
from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.evaluate import generate_answers
from routelab.methods.pathlock.export import export
from routelab.methods.pathlock.template import with_mode
from routelab.train import TrainConfig, train


def main(steps: int = 60, problems: int = 20) -> None:
    chats = to_messages(MiniWorld().arithmetic("train", 500, draw="example"), "arithmetic")
    rows = []
    for chat in chats:
        rows.append({"messages": with_mode(chat["messages"], "think")})
        short = [chat["messages"][0], {"role": "assistant", "content": chat["messages"][1]["content"].split("\n")[-1]}]
        rows.append({"messages": with_mode(short, "no_think")})

    model, tokenizer = routelab.load_host("mini-dense", dtype=torch.float32)
    routelab.attach(model, routelab.PathLockConfig(), tokenizer=tokenizer)
    print(routelab.attached(model))
    folder = Path(tempfile.mkdtemp(prefix="routelab-"))
    settings = TrainConfig(steps=steps, batch_size=8, max_length=256, learning_rate=1e-3)
    trained = train(model, tokenizer, rows, settings, seed=0, output_dir=folder / "train")
    print(f"  loss {trained.loss_first:.3f} -> {trained.loss_last:.3f}")

    asked = to_messages(MiniWorld().arithmetic("test", problems, draw="example"), "arithmetic")
    for mode in ("think", "no_think"):
        prompts = [with_mode(chat["messages"][:1], mode) for chat in asked]
        records = generate_answers(model, tokenizer, prompts, max_new_tokens=96)
        print(f"  {mode}: {mean(record['tokens'] for record in records):.0f} tokens an answer")

    routelab.save(model, folder / "routing")  # later: routelab.load(folder / "routing")
    for mode, checkpoint in export(model, folder / "plain").items():
        print(f"  {mode} as an ordinary checkpoint: {checkpoint}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
