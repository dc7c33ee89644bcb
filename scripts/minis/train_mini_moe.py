"""Train mini-moe (OLMoE architecture) on the mini-world, from nothing, on one CPU core; export it in bfloat16.

    OMP_NUM_THREADS=1 python scripts/minis/train_mini_moe.py

Writes ``log.jsonl`` and a checkpoint under ``scratch/mini-moe`` and continues from there when run again. The
learning rate warms up and then stays: a final decay would solve nearly everything and leave router training nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from feed import IGNORED, Batch, Feed
from measure import measure
from transformers import AutoTokenizer, GenerationConfig, OlmoeConfig, OlmoeForCausalLM
from transformers.models.olmoe.modeling_olmoe import load_balancing_loss_func

from routelab.hosts.minis.loader import TOKENIZER, WEIGHTS

WARMUP = 100


def build(seed: int) -> OlmoeForCausalLM:
    """Six layers of sixteen experts, two of them active per token; 2.9 million parameters."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    config = OlmoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_experts=16,
        num_experts_per_tok=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        router_aux_loss_coef=0.01,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        use_cache=True,
    )
    return OlmoeForCausalLM(config)


def learning_rate(step: int, peak: float) -> float:
    """Linear warm-up over :data:`WARMUP` steps, then ``peak``."""
    return peak * min(1.0, (step + 1) / WARMUP)


def weigh(batch: Batch) -> torch.Tensor:
    """Weight of each predicted position, ``[rows, length - 1]``; zero where there is no label."""
    return (batch.labels[:, 1:] != IGNORED) * batch.weights[:, None]


def losses(model: OlmoeForCausalLM, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of the labelled tokens' losses (the head runs on these alone), and the load-balancing loss."""
    out = model.model(input_ids=batch.input_ids, output_router_logits=True, use_cache=False)
    weights = weigh(batch)
    chosen = weights > 0
    logits = model.lm_head(out.last_hidden_state[:, :-1][chosen])
    loss = torch.nn.functional.cross_entropy(logits, batch.labels[:, 1:][chosen], reduction="none")
    config = model.config
    balance = load_balancing_loss_func(out.router_logits, config.num_experts, config.num_experts_per_tok)
    return (loss * weights[chosen]).sum(), balance


def export(model: OlmoeForCausalLM, target: Path) -> None:
    """Write ``model`` in bfloat16 as an ordinary checkpoint, then put it in place of the old one."""
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    copy = OlmoeForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(
        eos_token_id=model.config.eos_token_id, pad_token_id=model.config.pad_token_id, do_sample=False
    )
    copy.save_pretrained(new)
    for file in TOKENIZER.iterdir():  # the one tokenizer of all minis, so that the directory stands alone
        shutil.copyfile(file, new / file.name)
    for file in new.iterdir():
        file.chmod(0o644)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(new, target)


def save_atomic(state: dict[str, Any], path: Path) -> None:
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def train(args: argparse.Namespace) -> None:
    args.work.mkdir(parents=True, exist_ok=True)
    checkpoint, log = args.work / "checkpoint.pt", args.work / "log.jsonl"
    model = build(args.seed)
    model.set_experts_implementation(args.experts)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    feed = Feed(tokenizer, seed=args.seed, documents=args.documents)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=True)
    first, seconds, seen = 0, 0.0, 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds, seen = state["step"], state["seconds"], state["tokens"]
    if args.export_only:
        export(model, args.export)
        return
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, from step {first}", flush=True)

    model.train()
    for step in range(first, args.steps):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.lr)
        batches = feed.batches(step)
        total = sum(float(weigh(b).sum()) for b in batches)
        loss = aux = 0.0
        for batch in batches:
            text, balance = losses(model, batch)
            share = balance * batch.input_ids.numel() / sum(b.input_ids.numel() for b in batches)
            (text / total + model.config.router_aux_loss_coef * share).backward()
            loss, aux = loss + float(text.detach()) / total, aux + float(share.detach())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds += time.perf_counter() - began
        seen += sum(int((b.input_ids != tokenizer.pad_token_id).sum()) for b in batches)
        done = step + 1
        record: dict[str, Any] = {"step": done, "tokens": seen, "seconds": round(seconds, 1)}
        if done % 10 == 0:
            record |= {"loss": round(loss, 4), "aux": round(aux, 4), "norm": round(float(norm), 3)}
        if done % args.measure_every == 0 or done == args.steps:
            record |= measure(model, tokenizer, split="validation", n=args.measure_n, steps=(2, 4))
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_atomic(state | {"step": done, "seconds": seconds, "tokens": seen}, checkpoint)
        if len(record) > 3:
            with log.open("a") as lines:
                lines.write(json.dumps(record) + "\n")
    export(model, args.export)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2200)
    parser.add_argument("--documents", type=int, default=32, help="documents a step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--experts", default="grouped_mm", choices=["eager", "grouped_mm"])
    parser.add_argument("--measure-every", type=int, default=200)
    parser.add_argument("--measure-n", type=int, default=64)
    parser.add_argument("--work", type=Path, default=Path("scratch/mini-moe"))
    parser.add_argument("--export", type=Path, default=WEIGHTS / "mini-moe")
    parser.add_argument("--export-only", action="store_true", help="export the checkpoint as it is; do not train")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
