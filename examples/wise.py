"""Working-set inference on a depth-recurrent host: density, what it changes, its leak and its margins, in one file.

python examples/wise.py [host] [sentences]
"""

from __future__ import annotations

import sys

import torch

import routelab
from routelab.data.mini_world import MiniWorld
from routelab.methods.wise.leak import support_leak
from routelab.study.margins import measure_margins

STEPS = 32


@torch.no_grad()
def main(host: str = "mini-recurrent", sentences: str = "24") -> None:
    model, tokenizer = routelab.load_host(host, dtype=torch.float32)
    rows = MiniWorld().paragraphs("test", 4, sentences=(int(sentences) // 2, int(sentences)), hops=2, draw="example")
    prompts = [f"{row['context']}\n{row['question']}" for row in rows]
    tokenizer.padding_side = "left"
    batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "num_steps": STEPS}

    full = model(**inputs).logits[:, -1].log_softmax(-1)
    for condition in ("wise", "static", "mass_matched", "size_matched", "freeze", "truncate", "random"):
        routelab.attach(model, routelab.WISEConfig(condition=condition))
        last = model(**inputs).logits[:, -1].log_softmax(-1)
        divergence = (full.exp() * (full - last)).sum(-1).mean()
        changed = (full.argmax(-1) != last.argmax(-1)).float().mean()
        record = routelab.attached(model)[0].last
        print(
            f"{condition:13s} density {record.density:.2f}, {record.looked} steps looked, backend {record.backend}; "
            f"KL from full {divergence:.4f}, next token changed {changed:.0%}"
        )
        routelab.detach(model)

    routelab.attach(model, routelab.WISEConfig())
    written = model.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    answers = tokenizer.batch_decode(written[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    for row, answer in zip(rows, answers, strict=True):
        print(f"  {row['question']} -> {answer.strip()!r} (right: {row['answer']})")

    alone = batch["input_ids"][:1][batch["attention_mask"][:1].bool()][None]
    for causal in (False, True):
        leak = support_leak(model, alone, routelab.WISEConfig(causal=causal), num_steps=STEPS)
        print(f"leak of later tokens, causal={causal}: {leak.mean_log_probability:.4f} nats on the token that follows")
    summary = measure_margins(model, alone, num_steps=STEPS).summary()
    print({name: round(value, 4) for name, value in summary.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
