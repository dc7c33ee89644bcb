"""Teach the routers of the shipped mini host which experts are whose, and see how far tasks and experts align.

python examples/taskrouting.py [steps] [texts of each task]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

import routelab
from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.study.task_experts import Text, task_experts
from routelab.train import TrainConfig, encode_rows, train

TASKS = ("arithmetic", "facts", "paragraphs")


def rows(split: str, count: int) -> list[dict]:
    """Return chats of every task, labelled with it."""
    world = MiniWorld()
    drawn = {name: getattr(world, name)(split, count) for name in TASKS}
    return [row | {"task": name} for name, part in drawn.items() for row in to_messages(part, name)]


def main(steps: int = 40, texts: int = 16) -> None:
    settings = TrainConfig(steps=steps, batch_size=16, max_length=320, learning_rate=1e-2)
    model, tokenizer = routelab.load_host("mini-moe", dtype=torch.float32)
    held_out = encode_rows(tokenizer, rows("test", texts), settings)
    by_task: dict[str, list[Text]] = {name: [] for name in TASKS}
    for document in held_out.documents:
        assert document.task_ids is not None
        by_task[held_out.tasks[document.task_ids[0]]].append(Text(document.input_ids.tolist(), document.prompt))

    def report(when: str) -> None:
        found = task_experts(model, by_task)
        active = ", ".join(f"{n / found['parameters']:.0%}" for n in found["active_parameters"])
        print(f"{when}: NMI {found['nmi']:.3f}, purity {found['purity']:.3f}, active parameters {active}")
        for task, row in zip(TASKS, found["layers"][-1]["share"], strict=True):
            print(f"  last layer, {task:10} " + " ".join(f"{100 * share:3.0f}" for share in row))

    report("before")
    routelab.attach(model, routelab.TaskRoutingConfig(tasks=TASKS, task_router=0.3, experts_per_task=5))
    print(routelab.attached(model))
    folder = Path(tempfile.mkdtemp(prefix="routelab-"))
    result = train(model, tokenizer, rows("train", 200), settings, seed=0, output_dir=folder)
    last = result.history[-1]
    print(
        f"language-model loss {result.loss_first:.3f} -> {result.loss_last:.3f}, router loss {last['router_loss']:.3f}"
    )
    report("after")
    print(f"saved: {routelab.save(model, folder / 'routing')}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
