"""What Trainer, TRL and the checks cost beside a bare loop, in milliseconds of processor time, on mini-moe's shape.

OMP_NUM_THREADS=1 python benchmarks/training.py
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, OlmoeConfig, OlmoeForCausalLM, PreTrainedModel

import routelab
from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.hosts.minis.loader import TOKENIZER
from routelab.train import EncodedRows, TrainConfig, encode_rows, make_plan, train
from routelab.train.collate import collate
from routelab.train.encode import IGNORED
from routelab.train.freeze import frozen_digests, trainable_parameters
from routelab.train.trainer import RoutingTrainer

CONFIG = TrainConfig(steps=12, batch_size=16, learning_rate=1e-3, log_every=1)


def build_host() -> PreTrainedModel:
    torch.manual_seed(0)
    config = OlmoeConfig(
        vocab_size=1280,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_experts=16,
        num_experts_per_tok=2,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=2,
    )
    return routelab.attach(OlmoeForCausalLM(config).eval(), routelab.RoutingOnlyConfig())


def bare_loop(model: PreTrainedModel, encoded: EncodedRows) -> float:
    """Milliseconds a step: the same batches, loss, clipping and optimiser, written out."""
    plan, trained = make_plan(encoded, CONFIG, 0), list(trainable_parameters(model).values())
    optimizer, times = torch.optim.AdamW(trained, lr=1e-3), []
    model.train()
    for rows in plan.batches:
        start = time.process_time()
        batch = collate(plan.documents, rows, packed=False, pad_token=0)
        labels = batch.pop("labels")[:, 1:]
        logits = model(**batch, use_cache=False).logits[:, :-1]
        cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time() - start)
    return sorted(times)[len(times) // 2] * 1e3


def trainer_loop(model: PreTrainedModel, tokenizer: Any, encoded: EncodedRows) -> tuple[float, float]:
    """Milliseconds a step, and of the whole call beyond its steps."""
    marks: list[float] = []

    def mark(line: object) -> None:
        marks.append(time.process_time())

    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        train(model, tokenizer, encoded, CONFIG, seed=0, output_dir=folder, on_log=mark)
    total = time.process_time() - start
    steps = sorted(b - a for a, b in pairwise(marks))
    step = steps[len(steps) // 2]
    return step * 1e3, (total - step * CONFIG.steps) * 1e3


def main() -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    rows = to_messages(MiniWorld(seed=0).arithmetic("train", 400), "arithmetic")
    start = time.process_time()
    encoded = encode_rows(tokenizer, rows, CONFIG)
    print(f"encode a row                     {(time.process_time() - start) / len(rows) * 1e3:8.2f}")
    model = build_host()
    bare_loop(model, encoded)
    print(f"bare loop, a step                {bare_loop(model, encoded):8.1f}")
    step, rest = trainer_loop(model, tokenizer, encoded)
    print(f"routelab.train, a step           {step:8.1f}")
    print(f"routelab.train, once a call      {rest:8.1f}")
    with patch.object(RoutingTrainer, "uses_fused_loss", staticmethod(lambda device: True)):
        print(f"with TRL's fused head, a step    {trainer_loop(model, tokenizer, encoded)[0]:8.1f}")
    start = time.process_time()
    digests = frozen_digests(model, trainable_parameters(model))
    size = sum(parameter.numel() * 4 for parameter in model.parameters()) / 2**20
    print(f"hash {len(digests)} frozen tensors, {size:.0f} MiB    {(time.process_time() - start) * 1e3:8.1f}")


if __name__ == "__main__":
    main()
