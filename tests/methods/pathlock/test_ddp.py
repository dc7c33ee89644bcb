"""Two processes: an expert that no rank used rests bit for bit; one that a single rank used stays equal on both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORKER = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
import routelab
from routelab.hosts.minis.loader import TOKENIZER

rank, meeting = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
torch.manual_seed(0)
host = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=2,
                                    num_attention_heads=2, num_key_value_heads=2))
routelab.attach(host, routelab.PathLockConfig(), tokenizer=AutoTokenizer.from_pretrained(TOKENIZER))
model = DistributedDataParallel(host, find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)

def step(mode):
    ids = torch.randint(32, (2, 6), generator=torch.Generator().manual_seed(rank))
    model(ids, labels=ids, routing_index=torch.tensor([mode, mode])).loss.backward()
    optimizer.step()
    optimizer.zero_grad()

def weights(mode):
    return torch.cat([p.detach().flatten() for name, p in host.named_parameters() if f".mlp.{mode}." in name])

start = weights("no_think")
step(rank)  # one rank thinks, the other does not
held = weights("no_think")
assert not torch.equal(held, start)
for _ in range(2):
    step(1)
assert torch.equal(weights("no_think"), held)
everything = torch.cat([p.detach().flatten() for p in host.parameters()])
other = everything.clone()
dist.broadcast(other, 0)
assert torch.equal(everything, other)
print("rests")
dist.destroy_process_group()
"""


def test_two_processes(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in range(2)
    ]
    for worker in workers:
        output, errors = worker.communicate(timeout=120)
        assert output.strip().endswith("rests"), errors
