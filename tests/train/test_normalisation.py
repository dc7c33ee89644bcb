"""The loss of a step by token and by example, each equal to its formula, padded and packed, accumulated or not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import routelab
from routelab.hosts.minis import load_mini
from routelab.methods.full.config import FullConfig
from routelab.methods.pathlock.layer import normalised_loss
from routelab.train import TrainConfig, encode_rows, train

ROWS = [
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer}]}
    for answer in ("#### 7", "13 + 7 = 20\n20 - 3 = 17\n#### 17", "4 * 5 = 20\n#### 20", "#### 1")
]


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("normalisation", ["token", "example"])
@pytest.mark.parametrize(("batch_size", "grad_accum"), [(4, 1), (1, 4)])
def test_the_first_loss_is_the_formula(
    normalisation: str, batch_size: int, grad_accum: int, packing: bool, tmp_path: Path
) -> None:
    model, tokenizer = load_mini("mini-dense", dtype=torch.float32)
    settings = TrainConfig(
        steps=1,
        batch_size=1 if packing else batch_size,
        grad_accum=1 if packing else grad_accum,
        max_length=256,
        packing=packing,
        learning_rate=1e-9,
        loss_normalisation=normalisation,
    )
    losses, examples = [], []
    for number, document in enumerate(encode_rows(tokenizer, ROWS, settings).documents):
        ids, labels = (torch.from_numpy(part).long() for part in (document.input_ids, document.labels))
        with torch.no_grad():
            logits = model(ids[None]).logits[0, :-1]
        seen = labels[1:] != -100
        losses.append(torch.nn.functional.cross_entropy(logits[seen], labels[1:][seen], reduction="none"))
        examples.append(torch.full((int(seen.sum()),), number))
    wanted = float(normalised_loss(torch.cat(losses), torch.cat(examples), normalisation))
    routelab.attach(model, FullConfig())
    result = train(model, tokenizer, ROWS, settings, seed=0, output_dir=tmp_path)
    assert result.loss_first == pytest.approx(wanted, rel=1e-5)
