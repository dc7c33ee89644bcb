"""Make the real Mixture-of-Experts host: SmolLM2-135M split into experts, its routers fitted, then trained.

    ROUTELAB_DATA=... python scripts/real/train_smollm2_moe_host.py

Three stages, each kept on disk, so that a killed run goes on where it was:

1. split every MLP into experts and fit the routers in closed form      -> OUTPUT/start  (an ordinary checkpoint)
2. train the routers alone on GSM8K-train and instruction chats         -> OUTPUT/train  (metrics.jsonl, checkpoint)
3. save the host, with its loss on held-out GSM8K-test answers          -> OUTPUT/host   (an ordinary checkpoint)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import shutil
import sys
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.data.chat import to_messages
from routelab.data.sources import load_rows
from routelab.evaluate.loss import text_loss
from routelab.hosts.router_fit import fit_routers
from routelab.hosts.upcycle import upcycle
from routelab.train import TrainConfig, train

Rows = list[dict[str, object]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("scratch/smollm2-moe"))
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--active", type=int, default=6, help="experts per token")
    parser.add_argument("--fit-rows", type=int, default=40, help="chats for the closed-form fit")
    parser.add_argument("--tokens", type=int, default=24_000, help="tokens of router training")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--held-out", type=int, default=60, help="GSM8K-test texts for the loss")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def training_rows(seed: int) -> Rows:
    """GSM8K-train and Alpaca chats, mixed once by ``seed``."""
    rows = to_messages(load_rows("gsm8k/train.jsonl.gz"), "gsm8k")
    rows += to_messages(load_rows("sft/alpaca_en_demo.jsonl.gz"), "alpaca")
    random.Random(seed).shuffle(rows)
    return rows


def save_checkpoint(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path, notes: dict) -> None:
    """Write an ordinary checkpoint with ``host.json`` beside it, all or nothing."""
    building = path.with_name(f".{path.name}")
    shutil.rmtree(building, ignore_errors=True)
    model.save_pretrained(building)
    tokenizer.save_pretrained(building)
    (building / "host.json").write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")
    os.replace(building, path)


def start_host(arguments: argparse.Namespace, rows: Rows) -> None:
    """Stage 1: the neuron split with fitted routers."""
    path = arguments.output / "start"
    if path.exists():
        return
    dense, tokenizer = routelab.load_host("smollm2-135m")
    moe = upcycle(dense, experts=arguments.experts, top_k=arguments.active, seed=arguments.seed)
    texts = (tokenizer.apply_chat_template(row["messages"], tokenize=False) for row in rows[: arguments.fit_rows])
    tokens = fit_routers(moe, (tokenizer(text, return_tensors="pt").input_ids for text in texts))
    notes = {"experts": arguments.experts, "active": arguments.active, "fit_tokens": tokens, "seed": arguments.seed}
    save_checkpoint(moe, tokenizer, path, notes)
    print(f"start: routers fitted on {tokens} tokens", flush=True)


def held_out_loss(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, limit: int) -> float:
    """Mean loss per answer token on the first ``limit`` GSM8K-test texts."""
    rows = to_messages(load_rows("gsm8k/test.jsonl.gz", limit=limit), "gsm8k")
    losses = text_loss(model.eval(), tokenizer, rows, batch_size=4)
    return sum(each.loss * each.tokens for each in losses) / sum(each.tokens for each in losses)


def main() -> None:
    arguments = parse_arguments()
    output: Path = arguments.output
    if (output / "host").exists():
        sys.exit(f"{output / 'host'} is already there; give another --output or remove it")
    output.mkdir(parents=True, exist_ok=True)
    rows = training_rows(arguments.seed)
    start_host(arguments, rows)

    model, tokenizer = routelab.load_host(output / "start", dtype=torch.float32)
    routelab.attach(model, routelab.RoutingOnlyConfig())
    config = TrainConfig(
        tokens=arguments.tokens,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        max_length=512,
        log_every=1,
        save_every=10,
    )
    result = train(
        model,
        tokenizer,
        rows[arguments.fit_rows :],
        config,
        seed=arguments.seed,
        output_dir=output / "train",
        resume=True,
        on_log=lambda line: print(json.dumps(line), flush=True),
    )

    # detach gives the routers of the start back, so the trained ones are carried over by hand
    trained = {name: tensor.clone() for name, tensor in model.state_dict().items() if name.endswith("mlp.gate.weight")}
    routelab.detach(model)
    model.load_state_dict(trained, strict=False)
    loss = held_out_loss(model, tokenizer, arguments.held_out)
    notes = {key: value for key, value in dataclasses.asdict(result).items() if key != "history"}
    settings = {key: value for key, value in vars(arguments).items() if key != "output"}
    save_checkpoint(model, tokenizer, output / "host", {**settings, "held_out_loss": loss, "training": notes})
    print(f"host: loss {loss:.4f} per answer token on {arguments.held_out} held-out GSM8K texts", flush=True)


if __name__ == "__main__":
    main()
