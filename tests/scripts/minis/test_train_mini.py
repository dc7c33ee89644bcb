"""The script behind the shipped weights: its documents are the chat template's, and a resumed run is the same run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from routelab.data import MiniWorld, to_messages
from routelab.hosts.minis.loader import TOKENIZER

SCRIPTS = Path(__file__).parents[3] / "scripts" / "minis"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("train_mini")


def test_documents_are_what_the_chat_template_writes(script: ModuleType) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    world = MiniWorld()
    for source in ("arithmetic", "facts", "paragraphs"):
        rows = getattr(world, source)("train", 5)
        encoded = importlib.import_module("feed").encode(rows, tokenizer)
        for (ids, labels), chat in zip(encoded, to_messages(rows, source), strict=True):
            out = tokenizer.apply_chat_template(chat["messages"], return_dict=True, return_assistant_tokens_mask=True)
            assert ids == out["input_ids"]
            assert [x != -100 for x in labels] == [m == 1 for m in out["assistant_masks"]]


def test_a_batch_depends_on_seed_and_step_alone(script: ModuleType) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    feed = importlib.import_module("feed")
    first, second = (feed.Feed(tokenizer, seed=1, documents=12) for _ in range(2))

    def batches(stream: Any, step: int) -> Any:
        return feed.batches(stream.documents(step), tokenizer.pad_token_id)

    batches(first, 0)
    for a, b in zip(batches(first, 5), batches(second, 5), strict=True):
        assert torch.equal(a.input_ids, b.input_ids)
        assert torch.equal(a.labels, b.labels)
        assert a.input_ids.shape[1] == int((a.labels != -100).nonzero()[:, 1].max()) + 2  # the newline ends a document
    assert [b.input_ids.tolist() for b in batches(first, 5)] != [b.input_ids.tolist() for b in batches(first, 6)]


@pytest.mark.parametrize("kind", ["recall", "recitation", "questions"])
def test_hops_are_labelled_where_they_can_be_known(script: ModuleType, kind: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    hops = importlib.import_module("hops")
    stream = hops.HopFeed(tokenizer, seed=0, documents=1)
    extra = (6, 0.5) if kind == "questions" else ()
    ids, labels = getattr(stream, kind)(random.Random(0), 4, *extra)
    assert len(ids) == len(labels)
    labelled = [(place, label) for place, label in enumerate(labels) if label != -100]
    assert labelled
    # Every value was told before; a label that is not the token that stands there is a bridge, told as well.
    ends = set(tokenizer.all_special_ids)
    assert all(label in ids[:place] or label in ends for place, label in labelled)
    bridges = [place for place, label in labelled if label != ids[place]]
    assert bool(bridges) == (kind == "questions")


@pytest.mark.parametrize("mini", ["mini-moe", "mini-dense", "mini-recurrent"])
def test_a_resumed_run_ends_in_the_same_weights(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mini: str
) -> None:
    quick = dataclasses.replace(script.MINIS[mini], measure=lambda *args, **kwargs: {"facts": 0.0})
    monkeypatch.setitem(script.MINIS, mini, quick)

    def run(name: str, steps: int) -> dict[str, torch.Tensor]:
        options = (
            f"--steps {steps} --documents 4 --measure-every 2 --work {tmp_path / name} --export {tmp_path / name}-out"
        )
        monkeypatch.setattr(sys, "argv", ["train_mini.py", mini, *options.split()])
        script.main()
        return torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["model"]

    run("parts", 2)
    resumed, whole = run("parts", 4), run("whole", 4)
    assert all(torch.equal(resumed[k], whole[k]) for k in whole)
    assert json.loads((tmp_path / "whole-out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert AutoTokenizer.from_pretrained(tmp_path / "whole-out").chat_template
