"""The script behind the shipped weights: its documents are the chat template's, and a resumed run is the same run."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

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
    first, second = (script.Feed(tokenizer, seed=1, documents=12) for _ in range(2))
    first.batches(0)
    for a, b in zip(first.batches(5), second.batches(5), strict=True):
        assert torch.equal(a.input_ids, b.input_ids)
        assert torch.equal(a.labels, b.labels)
        assert a.input_ids.shape[1] == int((a.labels != -100).nonzero()[:, 1].max()) + 2  # the newline ends a document
    assert [b.input_ids.tolist() for b in first.batches(5)] != [b.input_ids.tolist() for b in first.batches(6)]


@pytest.mark.parametrize("mini", ["mini-moe", "mini-dense"])
def test_a_resumed_run_ends_in_the_same_weights(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mini: str
) -> None:
    monkeypatch.setattr(script, "measure", lambda *args, **kwargs: {"facts": 0.0})

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
