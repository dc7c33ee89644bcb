"""Train the attached methods of a model on chats, and prove that nothing else moved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from routelab import processes
from routelab.errors import TrainingError
from routelab.methods.attachment import attached, task_names
from routelab.train.checkpoint import latest_checkpoint, read_progress, step_of
from routelab.train.checks import check_packing, check_place, check_router_gradient
from routelab.train.config import TrainConfig
from routelab.train.encode import EncodedRows, encode_rows, encoding_settings
from routelab.train.freeze import (
    combined_digest,
    frozen_digests,
    only_trainable,
    require_unchanged,
    trainable_parameters,
    undisturbed,
)
from routelab.train.optimizer import MasterAdamW, linear_schedule
from routelab.train.plan import Plan, make_plan
from routelab.train.recorder import Log, Recorder, peak_memory
from routelab.train.shares import shared_plan
from routelab.train.tasks import tasks_digest, with_tasks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TrainResult:
    """What a training did. Everything in it is plain data.

    Attributes:
        steps, tokens, labelled_tokens: the whole run's; ``tokens`` counts input tokens without padding.
        seconds: time in the training loop, parts before a resume included.
        loss_first, loss_last: loss of the first step, and mean loss over the last tenth of the steps, without what a
            method adds of its own.
        trained: number of trained parameters; ``trained_tensors`` their tensors.
        frozen_identical: every frozen tensor has the bytes it had before (else ``train`` raises).
        frozen_tensors, frozen_sha256: how many were compared, and one hash over all of them.
        rows: rows given, dropped as ``too_long`` or ``no_labels``, and ``cut``.
        data_sha256: the plan's fingerprint: equal for two runs exactly when they saw equal batches in equal order.
        resumed_from: steps that came from a checkpoint; every tensor of it was checked.
        history: the lines of ``metrics.jsonl``.
    """

    steps: int
    tokens: int
    labelled_tokens: int
    seconds: float
    loss_first: float
    loss_last: float
    trained: int
    trained_tensors: int
    frozen_identical: bool
    frozen_tensors: int
    frozen_sha256: str
    rows: Mapping[str, int]
    data_sha256: str
    resumed_from: int
    peak_memory_mb: int
    history: Sequence[Mapping[str, float | int]]


def train(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, Any]] | EncodedRows,
    config: TrainConfig,
    *,
    seed: int,
    output_dir: str | Path,
    resume: bool = False,
    on_log: Callable[[Log], None] | None = None,
) -> TrainResult:
    """Train the parameters of every attached method of ``model``, in place, through TRL's ``SFTTrainer``.

    Everything else is frozen, hashed before and after, and must be bit-identical. The model is trained on the device
    it is on; apart from the trained tensors it comes back as it went in: forward, configs, flags, modes, hooks.

    Started by ``torchrun``, the processes share every step out: its batches, or their rows where there are too few
    batches. Each holds the whole model (DDP); a step is the one that a single process would make, apart from rounding,
    and so is what is recorded. The first process writes; a checkpoint goes on with any number of processes.

    Args:
        rows: ``{"messages": [{"role", "content"}, ...]}`` each, with a ``"task"`` where a method needs one; or what
            :func:`encode_rows` made of them with the same tokenizer and settings, so that several runs encode them
            once.
        seed: decides the order of the data, and nothing else in the data: two arms with one seed see the same batches.
        output_dir: gets ``metrics.jsonl`` and ``checkpoint-<step>/``.
        resume: go on from the latest checkpoint in ``output_dir`` where there is one. The final weights are those of
            an uninterrupted run, bit by bit, on the same machine with the same number of threads.
        on_log: called with every line of ``metrics.jsonl``. Without it, a progress bar shows on a terminal.

    Raises:
        TrainingError: nothing is attached, no labelled token is left, a router would get no gradient, packing would
            let documents see each other, batches cannot be shared by the processes, a row has no task where a method
            needs one, the loss is not finite, or a frozen tensor changed.
        CheckpointError: the checkpoint is damaged or belongs to another run.
        DataError: a row cannot be rendered.
        LaunchError: several processes were asked for in a way that does not give them.
    """
    directory = Path(output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    trainable = trainable_parameters(model)
    check_router_gradient(model)
    processes.join()
    check_place(model, config)
    start = processes.first_decides(lambda: latest_checkpoint(directory))
    if start is not None and not resume:
        raise TrainingError(f"{directory} already holds {start.name}; pass resume=True or another directory")

    encoded = rows if isinstance(rows, EncodedRows) else encode_rows(tokenizer, rows, config)
    if encoded.settings != encoding_settings(config):
        raise TrainingError(f"the rows were encoded with {encoded.settings}, the run wants {encoding_settings(config)}")
    tasks = task_names(model)
    if tasks:
        encoded = with_tasks(encoded, tasks)
    plan = make_plan(encoded, config, seed)
    with undisturbed(model), only_trainable(model, trainable), _progress_bar(plan, on_log) as show:
        if config.packing:
            check_packing(model)
        before = frozen_digests(model, trainable)
        run = {
            "methods": [[method.name, repr(method.config)] for method in attached(model)],
            "seed": seed,
            "data": plan.fingerprint,
            "host": combined_digest(before),
            "config": {k: v for k, v in asdict(config).items() if k not in ("log_every", "save_every")},
            **({"tasks": tasks_digest(encoded)} if tasks else {}),
        }
        resumed = None if start is None else read_progress(start, run)
        recorder = Recorder(directory / "metrics.jsonl", plan, every=config.log_every, on_log=show, resumed=resumed)
        _run(model, tokenizer, config, plan, trainable, recorder, run, seed=seed, directory=directory, start=start)
        after = frozen_digests(model, trainable)
    require_unchanged(before, after)
    tail = recorder.losses[-max(1, plan.steps // 10) :]
    return TrainResult(
        steps=plan.steps,
        tokens=plan.tokens,
        labelled_tokens=plan.labelled,
        seconds=round(recorder.seconds, 3),
        loss_first=recorder.losses[0],
        loss_last=sum(tail) / len(tail),
        trained=sum(parameter.numel() for parameter in trainable.values()),
        trained_tensors=len(trainable),
        frozen_identical=before == after,
        frozen_tensors=len(before),
        frozen_sha256=combined_digest(after),
        rows=encoded.counts,
        data_sha256=plan.fingerprint,
        resumed_from=0 if start is None else step_of(start),
        peak_memory_mb=int(peak_memory()["peak_memory_mb"]),
        history=recorder.history,
    )


def _run(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: TrainConfig,
    plan: Plan,
    trainable: Mapping[str, torch.nn.Parameter],
    recorder: Recorder,
    run: Mapping[str, Any],
    *,
    seed: int,
    directory: Path,
    start: Path | None,
) -> None:
    from routelab.train.trainer import RoutingTrainer, sft_config

    methods = attached(model)
    own_loss = config.aux_loss_coef is not None or any(method.has_own_loss for method in methods)
    shared = shared_plan(plan, processes.count(), whole_batches=own_loss)
    conditional = any(True for method in methods for _ in method.conditional_parameters())
    optimizer = MasterAdamW(trainable, lr=config.learning_rate, weight_decay=config.weight_decay)
    trainer = RoutingTrainer(
        model=model,
        tokenizer=tokenizer,
        args=sft_config(config, shared, seed=seed, directory=directory, device=model.device, conditional=conditional),
        plan=shared,
        trainable=trainable,
        optimizer=optimizer,
        scheduler=linear_schedule(optimizer, config, plan.steps),
        recorder=recorder,
        run=run,
        pad_token=_pad_token(tokenizer),
        by_example=config.loss_normalisation == "example",
    )
    trainer.train(resume_from_checkpoint=None if start is None else str(start))
    if len(recorder.losses) != plan.steps:
        raise TrainingError(f"training ended after {len(recorder.losses)} of {plan.steps} steps")


def _pad_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Any token will do: padding is masked and has no labels."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


@contextmanager
def _progress_bar(plan: Plan, on_log: Callable[[Log], None] | None) -> Iterator[Callable[[Log], None] | None]:
    if on_log is not None or not sys.stderr.isatty() or not processes.is_first():
        yield on_log
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} steps"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=plan.steps)

        def show(line: Log) -> None:
            bar.update(task, completed=int(line["step"]), description=f"training, loss {line['loss']:.3f}")

        yield show
