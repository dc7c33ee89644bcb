"""Train a mini on the mini-world, from nothing, on one CPU core; export it in bfloat16.

    OMP_NUM_THREADS=1 python scripts/minis/train_mini.py mini-moe

Writes ``log.jsonl`` and a checkpoint under ``scratch/NAME`` and continues from there when run again.
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
from architectures import MINIS
from feed import IGNORED, Batch, batches
from transformers import AutoTokenizer, GenerationConfig, PreTrainedModel
from transformers.models.olmoe.modeling_olmoe import load_balancing_loss_func

from routelab.hosts.minis.loader import TOKENIZER, WEIGHTS

WARMUP = 100


def learning_rate(step: int, peak: float, steps: int, decay: int) -> float:
    """Linear warm-up over :data:`WARMUP` steps, then ``peak``, then linear to zero over the last ``decay`` steps."""
    return peak * min(1.0, (step + 1) / WARMUP, (steps - step) / max(1, decay))


def weigh(batch: Batch) -> torch.Tensor:
    """Weight of each predicted position, ``[rows, length - 1]``; zero where there is no label."""
    return (batch.labels[:, 1:] != IGNORED) * batch.weights[:, None]


def losses(model: PreTrainedModel, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of the labelled tokens' losses (the head runs on these alone), and the load-balancing loss."""
    config = model.config
    routed = {"output_router_logits": True} if hasattr(config, "num_experts") else {}
    out = model.base_model(input_ids=batch.input_ids, use_cache=False, **routed)
    weights = weigh(batch)
    chosen = weights > 0
    logits = model.lm_head(out.last_hidden_state[:, :-1][chosen])
    loss = torch.nn.functional.cross_entropy(logits, batch.labels[:, 1:][chosen], reduction="none")
    balance = torch.zeros(())
    if routed:
        balance = load_balancing_loss_func(out.router_logits, config.num_experts, config.num_experts_per_tok)
    return (loss * weights[chosen]).sum(), balance


def export(model: PreTrainedModel, target: Path) -> None:
    """Write ``model`` in bfloat16 as an ordinary checkpoint, then put it in place of the old one."""
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    copy = type(model)(model.config).to(torch.bfloat16)
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
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(args.seed)
    model = args.mini.build(tokenizer)
    coefficient = getattr(model.config, "router_aux_loss_coef", 0.0)
    if coefficient:
        model.set_experts_implementation(args.experts)
    feed = args.mini.feed(tokenizer, seed=args.seed, documents=args.documents)
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
            group["lr"] = learning_rate(step, args.lr, args.steps, args.decay)
        if args.mini.before is not None:
            args.mini.before(model, step)
        torch.manual_seed(args.seed + step)  # a recurrent host draws its depth and its initial state
        parts = batches(feed.documents(step), tokenizer.pad_token_id)
        total = sum(float(weigh(b).sum()) for b in parts)
        loss = aux = 0.0
        for batch in parts:
            text, balance = losses(model, batch)
            share = balance * batch.input_ids.numel() / sum(b.input_ids.numel() for b in parts)
            (text / total + coefficient * share).backward()
            loss, aux = loss + float(text.detach()) / total, aux + float(share.detach())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds += time.perf_counter() - began
        seen += sum(int((b.input_ids != tokenizer.pad_token_id).sum()) for b in parts)
        done = step + 1
        record: dict[str, Any] = {"step": done, "tokens": seen, "seconds": round(seconds, 1)}
        if done % 10 == 0:
            record |= {"loss": round(loss, 4), "aux": round(aux, 4), "norm": round(float(norm), 3)}
        if done % args.measure_every == 0 or done == args.steps:
            record |= args.mini.measure(model, tokenizer, split="validation", n=args.measure_n)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save_atomic(state | {"step": done, "seconds": seconds, "tokens": seen}, checkpoint)
        if len(record) > 3:
            with log.open("a") as lines:
                lines.write(json.dumps(record) + "\n")
    export(model, args.export)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MINIS)
    parser.add_argument("--steps", type=int, help="default: as shipped, with the decay of the shipped run")
    parser.add_argument("--documents", type=int, default=32, help="documents a step")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--experts", default="grouped_mm", choices=["eager", "grouped_mm"])
    parser.add_argument("--measure-every", type=int, default=200)
    parser.add_argument("--measure-n", type=int, default=64)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--export-only", action="store_true", help="export the checkpoint as it is; do not train")
    args = parser.parse_args()
    args.mini = MINIS[args.name]
    args.decay = args.mini.decay if args.steps is None else 0
    args.steps = args.steps or args.mini.steps
    args.lr = args.lr or args.mini.lr
    args.work = args.work or Path("scratch") / args.name
    args.export = args.export or WEIGHTS / args.name
    train(args)


if __name__ == "__main__":
    main()
