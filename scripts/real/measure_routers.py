"""How much does the router of the split SmolLM2 decide? Loss per answer token under several routers.

    ROUTELAB_DATA=... python scripts/real/measure_routers.py --active 6

``by norm`` is no router that could be had: it computes every expert and takes those with the largest outputs, at equal
weights. It shows what choosing by contribution is worth.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import routelab
from routelab.data.chat import to_messages
from routelab.data.sources import load_rows
from routelab.evaluate.loss import text_loss
from routelab.hosts.router_fit import fit_routers
from routelab.hosts.upcycle import upcycle


def choose_by_norm(block: nn.Module, router: nn.Module, arguments: tuple[Tensor], output: tuple[Tensor, ...]) -> Any:
    """Forward hook of a router: replace its choice by the experts with the largest output norms."""
    x = arguments[0].flatten(0, -2)
    gate, up = torch.einsum("td,eid->eti", x, block.experts.gate_up_proj).chunk(2, dim=-1)
    norms = torch.bmm(nn.functional.silu(gate) * up, block.experts.down_proj.transpose(1, 2)).norm(dim=-1).T
    chosen = norms.topk(router.top_k, dim=1).indices
    return output[0], torch.full_like(output[1], 1 / router.top_k), chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--active", type=int, default=6, help="experts per token")
    parser.add_argument("--fit-rows", type=int, default=30, help="GSM8K-train chats for the closed-form fit")
    parser.add_argument("--scales", type=float, nargs="+", default=[0.3, 0.1, 0.03], help="scales of the fitted router")
    parser.add_argument("--texts", type=int, default=12, help="GSM8K-test texts for the loss")
    arguments = parser.parse_args()

    dense, tokenizer = routelab.load_host("smollm2-135m")
    texts = to_messages(load_rows("gsm8k/test.jsonl.gz", limit=arguments.texts), "gsm8k")
    chats = to_messages(load_rows("gsm8k/train.jsonl.gz", limit=arguments.fit_rows), "gsm8k")

    def report(router: str, model: nn.Module) -> None:
        losses = text_loss(model, tokenizer, texts, batch_size=4)
        loss = sum(each.loss * each.tokens for each in losses) / sum(each.tokens for each in losses)
        print(json.dumps({"router": router, "loss": round(loss, 3)}), flush=True)

    split = partial(upcycle, dense, experts=arguments.experts, top_k=arguments.active)
    report("none (dense)", dense)
    for seed in (0, 1):
        report(f"random, seed {seed}", split(router_init="random", seed=seed))
    moe = split()
    tokens = fit_routers(moe, (tokenizer.apply_chat_template(chat["messages"], return_tensors="pt")["input_ids"]
                               for chat in chats), scale=1.0)  # fmt: skip
    fitted = [layer.mlp.gate.weight.clone() for layer in moe.model.layers]
    for scale in arguments.scales:
        for layer, weight in zip(moe.model.layers, fitted, strict=True):
            layer.mlp.gate.weight.data = scale * weight
        report(f"fitted on {tokens} tokens, scale {scale}", moe)
    for layer in moe.model.layers:
        layer.mlp.gate.register_forward_hook(partial(choose_by_norm, layer.mlp))
    report("by norm", moe)


if __name__ == "__main__":
    main()
