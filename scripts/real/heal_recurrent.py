"""Make SmolLM2-135M depth-recurrent and train it for a while: how far does healing take it?

    ROUTELAB_DATA=... OMP_NUM_THREADS=1 python scripts/real/heal_recurrent.py --tokens 100000

The first, some late and the last layers become prelude, core and coda (retrofitted recurrence, arXiv 2511.07384). All
parameters then train on GSM8K-train and instruction chats, at a random depth. Writes metrics and checkpoints to
OUTPUT/train, from which a killed run goes on; the model to OUTPUT/host; and to OUTPUT/losses.json the loss per answer
token on held-out GSM8K-test texts, by number of steps, of the model as converted and as trained.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import routelab
from routelab.data.chat import to_messages
from routelab.data.sources import load_rows
from routelab.evaluate.gold_loss import calling_with
from routelab.evaluate.loss import text_loss
from routelab.hosts.recurrent import convert
from routelab.methods.full.config import FullConfig
from routelab.rundir import write_json
from routelab.train import TrainConfig, encode_rows, train

STEPS = (1, 2, 4, 8)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("scratch/smollm2-recurrent"))
    parser.add_argument("--prelude", type=int, default=6, help="first layers")
    parser.add_argument("--core", type=int, default=8, help="layers before the coda")
    parser.add_argument("--coda", type=int, default=6, help="last layers")
    parser.add_argument("--mean-recurrence", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--held-out", type=int, default=20, help="GSM8K-test texts for the loss")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def losses(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, limit: int) -> dict[str, float]:
    """Mean loss per answer token on the first ``limit`` GSM8K-test texts, by number of steps."""
    rows = to_messages(load_rows("gsm8k/test.jsonl.gz", limit=limit), "gsm8k")
    found = {}
    for steps in STEPS:
        with calling_with(model.eval(), num_steps=steps):
            each = text_loss(model, tokenizer, rows, batch_size=4)
        found[str(steps)] = sum(one.loss * one.tokens for one in each) / sum(one.tokens for one in each)
    return found


def main() -> None:
    arguments = parse_arguments()
    llama, tokenizer = routelab.load_host("smollm2-135m", dtype=torch.float32)
    layers = range(llama.config.num_hidden_layers)
    coda = layers[-arguments.coda :]
    model = convert(
        llama,
        prelude=layers[: arguments.prelude],
        core=layers[-arguments.coda - arguments.core : -arguments.coda],
        coda=coda,
        mean_recurrence=arguments.mean_recurrence,
        mean_backprop_depth=arguments.mean_recurrence,
    )
    before = losses(model, tokenizer, arguments.held_out)
    print(json.dumps({"converted": before}), flush=True)
    rows = to_messages(load_rows("gsm8k/train.jsonl.gz"), "gsm8k")
    rows += to_messages(load_rows("sft/alpaca_en_demo.jsonl.gz"), "alpaca")
    random.Random(arguments.seed).shuffle(rows)
    config = TrainConfig(
        tokens=arguments.tokens,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        max_length=384,
        log_every=5,
        save_every=20,
    )
    routelab.attach(model, FullConfig())
    result = train(
        model,
        tokenizer,
        encode_rows(tokenizer, rows, config),
        config,
        seed=arguments.seed,
        output_dir=arguments.output / "train",
        resume=True,
        on_log=lambda line: print(json.dumps(line), flush=True),
    )
    after = losses(model, tokenizer, arguments.held_out)
    print(json.dumps({"trained": after}), flush=True)
    model.save_pretrained(arguments.output / "host")
    tokenizer.save_pretrained(arguments.output / "host")
    numbers = {"converted": before, "trained": after, "tokens": result.tokens, "seconds": result.seconds}
    write_json(arguments.output / "losses.json", numbers)


if __name__ == "__main__":
    main()
