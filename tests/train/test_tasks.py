"""Task labels on their way from rows to the loss: encoding, padding, packing, accumulation, and both loss paths."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel

import routelab
from routelab.errors import DataError, TrainingError
from routelab.hosts.minis.loader import TOKENIZER
from routelab.train.collate import collate
from routelab.train.config import TrainConfig
from routelab.train.encode import IGNORED, EncodedRows, encode_rows
from routelab.train.plan import make_plan
from routelab.train.sft import train
from routelab.train.tasks import tasks_digest, with_tasks
from routelab.train.trainer import RoutingTrainer

Rows = Sequence[Mapping[str, Any]]
NAMES = ("maths", "places")
CONFIG = routelab.TaskRoutingConfig(tasks=NAMES, task_router=0.5, load_balance=0.1)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(TOKENIZER)


def chat(number: int, task: str | None) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"What is {number}?"}, {"role": "assistant", "content": "12 " * number}]
    return {"id": str(number), "messages": messages} | ({} if task is None else {"task": task})


ROWS = [chat(1, "places"), chat(2, "maths"), chat(3, "maths"), chat(4, "places")]


def settings(**values: Any) -> TrainConfig:
    return TrainConfig(**{"steps": 2, "batch_size": 2, "max_length": 64, "learning_rate": 1e-2, **values})


def encode(tokenizer: Any, rows: Rows = ROWS, **values: Any) -> EncodedRows:
    return encode_rows(tokenizer, rows, settings(**values))


def load(host: Path) -> tuple[PreTrainedModel, Any]:
    model, tokenizer = routelab.load_host(host, dtype=torch.float32)
    return model, tokenizer


def test_rows_carry_their_task_to_every_token(tokenizer: Any) -> None:
    encoded = encode(tokenizer, overlong="cut", max_length=24)
    assert encoded.tasks == ("places", "maths")
    for document, number in zip(encoded.documents, [0, 1, 1, 0], strict=True):
        assert document.task_ids.tolist() == [number] * len(document)
    named = with_tasks(encoded, NAMES)
    assert [int(document.task_ids[0]) for document in named.documents] == [1, 0, 0, 1]
    assert tasks_digest(named) != tasks_digest(with_tasks(encode(tokenizer, [*ROWS[:3], chat(4, "maths")]), NAMES))


def test_labels_do_not_change_the_batches(tokenizer: Any) -> None:
    """Arms with and without labels have one fingerprint: they see the same batches."""
    with_labels, without = encode(tokenizer), encode(tokenizer, [chat(i, None) for i in range(1, 5)])
    assert make_plan(with_labels, settings(), 0).fingerprint == make_plan(without, settings(), 0).fingerprint


def test_bad_labels_are_named(tokenizer: Any) -> None:
    with pytest.raises(DataError, match="row '5' has the task 3; a task is a name"):
        encode(tokenizer, [chat(5, 3)])  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=r"2 of 3 have none \(the first is document 1\).*out of: maths, places"):
        with_tasks(encode(tokenizer, [chat(1, "maths"), chat(2, None), chat(3, None)]), NAMES)
    with pytest.raises(TrainingError, match=r"labelled with the task 'place', .* lacks; did you mean 'places'"):
        with_tasks(encode(tokenizer, [chat(1, "place")]), NAMES)


def test_collated_arguments(tokenizer: Any) -> None:
    encoded = with_tasks(encode(tokenizer), NAMES)
    documents, sizes = encoded.documents, [len(document) for document in encoded.documents]
    every = {"task_ids", "token_mask", "prompt_mask"}
    padded = collate(documents, [(0,), (3,)], packed=False, pad_token=0, arguments=every)
    assert padded["task_ids"][0].tolist() == [1] * sizes[0] + [IGNORED] * (sizes[3] - sizes[0])
    assert torch.equal(padded["token_mask"], padded["attention_mask"])
    first_label = (padded["labels"][0] != IGNORED).nonzero()[0].item()
    assert padded["prompt_mask"][0].tolist() == [1] * first_label + [0] * (sizes[3] - first_label)
    packed = collate(documents, [(0, 1), (3,)], packed=True, pad_token=0, arguments={"task_ids", "token_mask"})
    length = max(sizes[0] + sizes[1], sizes[3])
    expected = [1] * sizes[0] + [0] * sizes[1]
    assert packed["task_ids"][0].tolist() == expected + [IGNORED] * (length - len(expected))
    assert packed["token_mask"].sum(-1).tolist() == [sizes[0] + sizes[1], sizes[3]]
    assert set(collate(documents, [(0,)], packed=False, pad_token=0)) == {"input_ids", "labels", "attention_mask"}


def by_hand(host: Path, encoded: EncodedRows, config: TrainConfig, method: Any) -> dict[str, torch.Tensor]:
    """The first gradient of a run, from one call a row, each with its own labels: no padding, no packing."""
    model, _ = load(host)
    routelab.attach(model, method)
    plan = make_plan(encoded, config, 0)
    passes = plan.batches[: config.grad_accum]
    labelled = sum(encoded.documents[i].labelled for rows in passes for row in rows for i in row)
    model.train()
    for rows in passes:
        documents = [encoded.documents[i] for row in rows for i in row]
        tokens = sum(map(len, documents))
        for document in documents:
            ids = torch.from_numpy(document.input_ids.astype(np.int64))[None]
            labels = torch.from_numpy(document.labels.astype(np.int64))[None]
            tasks = torch.from_numpy(document.task_ids.astype(np.int64))[None]
            output = model(ids, labels=labels, task_ids=tasks, use_cache=False)
            language = (output.loss - output.router_loss) * document.labelled / labelled
            # A mean over a pass's tokens, then over the passes of the step.
            (language + output.router_loss * len(document) / tokens / len(passes)).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "layout", [{}, {"grad_accum": 2}, {"packing": True, "max_length": 48}, {"gradient_checkpointing": True}]
)
def test_the_gradient_is_that_of_single_rows(
    host: Path, tokenizer: Any, tmp_path: Path, layout: dict[str, Any], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding, packing, accumulation, checkpointing and TRL's fused head leave the task-router loss what it is."""
    monkeypatch.setattr(RoutingTrainer, "uses_fused_loss", staticmethod(lambda device: fused))
    method = replace(CONFIG, load_balance=0.0)
    config = settings(steps=1, **layout, max_grad_norm=1e9)
    expected = by_hand(host, with_tasks(encode(tokenizer, **layout), NAMES), config, method)
    found: dict[str, torch.Tensor] = {}

    def note(trainer: RoutingTrainer, model: Any, grad_norm: Any = None) -> Any:
        found.update({name: p.grad.clone() for name, p in trainer.trainable.items()})
        return original(trainer, model, grad_norm)

    original = RoutingTrainer._get_grad_norm
    monkeypatch.setattr(RoutingTrainer, "_get_grad_norm", note)
    model, own = load(host)
    routelab.attach(model, method)
    train(model, own, ROWS, config, seed=0, output_dir=tmp_path)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-4)


def test_what_is_reported(host: Path, tmp_path: Path) -> None:
    """``loss`` is the language model's alone, comparable between arms; the method's own stands beside it."""
    model, tokenizer = load(host)
    control = train(
        routelab.attach(model, routelab.RoutingOnlyConfig()),
        tokenizer,
        ROWS,
        settings(),
        seed=0,
        output_dir=tmp_path / "a",
    )
    routelab.detach(model)
    tasks = train(routelab.attach(model, CONFIG), tokenizer, ROWS, settings(), seed=0, output_dir=tmp_path / "b")
    assert tasks.loss_first == pytest.approx(control.loss_first, abs=1e-6)
    assert tasks.history[0]["router_loss"] > 0.1
    assert "router_loss" not in control.history[0]
    assert tasks.data_sha256 == control.data_sha256
    assert tasks.frozen_identical


def test_rows_without_a_task_are_refused_before_the_first_step(host: Path, tmp_path: Path) -> None:
    model, tokenizer = load(host)
    routelab.attach(model, CONFIG)
    with pytest.raises(TrainingError, match="needs a task for every row"):
        train(model, tokenizer, [chat(1, None)], settings(), seed=0, output_dir=tmp_path)


@pytest.mark.parametrize("task_router", [0.0, 1.0])
def test_sequence_routing_trains_on_the_prompt(host: Path, tmp_path: Path, task_router: float) -> None:
    model, tokenizer = load(host)
    config = routelab.TaskRoutingConfig(tasks=NAMES, task_router=task_router, routing="sequence")
    routelab.attach(model, config)
    before = [p.detach().clone() for p in routelab.attached(model)[0].parameters()]
    result = train(model, tokenizer, ROWS, settings(gradient_checkpointing=True), seed=0, output_dir=tmp_path)
    assert result.steps == 2
    moved = [not torch.equal(a, b) for a, b in zip(before, routelab.attached(model)[0].parameters(), strict=True)]
    assert all(moved)


def test_a_resumed_run_ends_where_the_whole_one_does(host: Path, tmp_path: Path) -> None:
    def run(folder: str, stop: bool = False, resume: bool = False) -> list[torch.Tensor]:
        model, tokenizer = load(host)
        routelab.attach(model, CONFIG)

        def end(line: Mapping[str, Any]) -> None:
            if stop and line["step"] == 3:
                raise KeyboardInterrupt

        config = settings(steps=4, save_every=2, log_every=1)
        with contextlib.suppress(KeyboardInterrupt):
            train(model, tokenizer, ROWS, config, seed=0, output_dir=tmp_path / folder, resume=resume, on_log=end)
        return [p.detach().clone() for p in routelab.attached(model)[0].parameters()]

    whole = run("whole")
    run("cut", stop=True)
    for a, b in zip(whole, run("cut", resume=True), strict=True):
        assert torch.equal(a, b)
