"""TRL's ``SFTTrainer``, told what to train on, what to save and what to leave alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState
from trl import SFTConfig, SFTTrainer

from routelab import processes
from routelab.errors import TrainingError
from routelab.methods.attachment import added_arguments, attached
from routelab.train import checkpoint as ckpt
from routelab.train.checks import check_gradients
from routelab.train.collate import collate
from routelab.train.config import TrainConfig
from routelab.train.encode import IGNORED
from routelab.train.optimizer import MasterAdamW
from routelab.train.plan import Plan
from routelab.train.recorder import Recorder


@dataclass(frozen=True)
class Collator:
    """Turns the number of a batch of the plan into its tensors."""

    plan: Plan
    pad_token: int
    arguments: frozenset[str]
    by_example: bool

    def __call__(self, features: list[dict[str, int]]) -> dict[str, Tensor]:
        (feature,) = features
        plan, number = self.plan, feature["batch"]
        batch = collate(
            plan.documents,
            plan.batches[number],
            packed=plan.packed,
            pad_token=self.pad_token,
            arguments=self.arguments,
            examples=plan.examples_of_step(number) if self.by_example else None,
        )
        if number in plan.fillers:
            batch["labels"].fill_(IGNORED)
        return batch


def sft_config(
    config: TrainConfig, plan: Plan, *, seed: int, directory: Path, device: torch.device, conditional: bool
) -> SFTConfig:
    """Return TRL's arguments, with every default of TRL's and Trainer's that would change the result set here.

    ``conditional``: a forward pass may leave trained parameters out, which other processes must then not wait for.
    """
    return SFTConfig(
        output_dir=str(directory),
        max_steps=plan.steps,
        per_device_train_batch_size=1,  # one "example" is one batch of the plan
        gradient_accumulation_steps=plan.grad_accum // processes.count(),
        train_sampling_strategy="sequential",
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        max_length=None,
        packing=False,
        router_aux_loss_coef=config.aux_loss_coef or 0.0,
        max_grad_norm=config.max_grad_norm,
        activation_checkpointing=config.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if config.gradient_checkpointing else None,
        gradient_checkpointing=None,  # the deprecated name of the same switch, which TRL turns on
        bf16=config.dtype == "bfloat16",
        fp16=False,
        use_cpu=device.type == "cpu",
        ddp_find_unused_parameters=conditional,
        ddp_broadcast_buffers=False,
        dataloader_pin_memory=device.type == "cuda",
        seed=seed,
        save_strategy="steps",
        save_steps=config.save_every or plan.steps,
        logging_strategy="no",
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
    )


class RoutingTrainer(SFTTrainer):
    """``SFTTrainer`` over a fixed plan that saves and restores the trained tensors alone.

    Batches, order, labels and packing are the plan's. Checkpoints are :mod:`routelab.train.checkpoint`'s. Nothing is
    logged, reported or sent anywhere: TRL would post usage data, which training offline and in private must not do.

    On a GPU the loss is TRL's, whose fused kernel never holds all logits. Without one that kernel projects every
    position and projects it again in the backward pass; there, and where examples are weighed, the host's own head
    projects the labelled positions.
    """

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: Any,
        args: SFTConfig,
        plan: Plan,
        trainable: Mapping[str, nn.Parameter],
        optimizer: MasterAdamW,
        scheduler: LambdaLR,
        recorder: Recorder,
        run: Mapping[str, Any],
        pad_token: int,
        by_example: bool,
    ) -> None:
        self.plan, self.trainable, self.master, self.recorder = plan, dict(trainable), optimizer, recorder
        self.run = dict(run)
        self.progress: dict[str, Any] = {}
        self.step_loss = self.step_router_loss = self.grad_norm = self.pass_share = 0.0
        super().__init__(
            model=model,
            args=args,
            data_collator=Collator(plan, pad_token, added_arguments(model), by_example),
            train_dataset=Dataset.from_dict({"batch": list(range(len(plan.batches)))}),
            processing_class=tokenizer,
            optimizers=(optimizer, scheduler),
            callbacks=[StepCallback(self)],
        )
        # DDP takes the mean over the processes of gradients that are to be added up.
        self.processes = processes.count()
        # TRL's balance loss would count fillers.
        apart = by_example or (self.processes > 1 and self.aux_loss_enabled)
        self.fused_loss = self.uses_fused_loss(args.device) and not apart
        self.processing_class = None  # else Trainer rewrites the model's special tokens
        self.remove_callback(PrinterCallback)

    @staticmethod
    def uses_fused_loss(device: torch.device) -> bool:
        """Whether TRL's fused head computes the loss on this kind of device."""
        return device.type != "cpu"

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss: Tensor = super().training_step(*args, **kwargs)
        value = loss.item() / self.processes
        if not math.isfinite(value):
            raise TrainingError(f"the loss is {value} at step {self.state.global_step + 1}; lower learning_rate")
        self.step_loss += value
        self._metrics["train"].clear()  # the recorder has what is reported; TRL's lists would only grow
        return loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the language model's loss, with the host's balance loss and a method's own where they are on.

        Both of these are means over a forward pass, so the mean over the passes of a step is taken, those of all
        processes; the pass of a filler counts for nothing.
        """
        labels = inputs["labels"]
        self.pass_share = self.processes / self.plan.passes_of_step(self.state.global_step * self.plan.grad_accum)
        if self.processes > 1 and not (labels != IGNORED).any():
            self.pass_share = 0.0
        own: list[Tensor] = []

        def note(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if getattr(output, "router_loss", None) is not None:
                own.append(output.router_loss)

        handle = self.model.register_forward_hook(note)
        try:
            computed = self._language_model_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            handle.remove()
        loss, *outputs = computed if return_outputs else (computed,)
        if own:
            share = own[0] * self.pass_share
            self.step_router_loss += share.item() / self.processes
            loss = loss + share.to(loss.device)
        return (loss, *outputs) if return_outputs else loss

    def _language_model_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool, num_items_in_batch: Any
    ) -> Any:
        if self.fused_loss:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels, weights = inputs.pop("labels")[:, 1:], inputs.pop("loss_weights", None)
        seen = labels != IGNORED

        def labelled_only(head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][:, :-1][seen],)

        handle = self.model.get_output_embeddings().register_forward_pre_hook(labelled_only)
        try:
            outputs = model(**inputs, use_cache=False, output_router_logits=self.aux_loss_enabled)
        finally:
            handle.remove()
        if weights is None:
            loss = cross_entropy(outputs.logits.float(), labels[seen], reduction="sum") / num_items_in_batch
            loss = loss * self.processes
        else:
            losses = cross_entropy(outputs.logits.float(), labels[seen], reduction="none")
            loss = torch.dot(losses, weights[:, 1:][seen].to(losses)) * self.processes
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * outputs.aux_loss * self.pass_share
        return (loss, outputs) if return_outputs else loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        grad_norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.grad_norm = float(grad_norm)
        if not math.isfinite(self.grad_norm):
            raise TrainingError(
                f"the gradient norm is {self.grad_norm} at step {self.state.global_step + 1}; lower learning_rate"
            )
        return grad_norm

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        return 0  # Trainer would count the host's parameters again at every step

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        pass

    def _send_telemetry(self) -> None:
        pass

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if not processes.is_first():
            return
        ckpt.write_checkpoint(
            Path(self.args.output_dir),
            self.state.global_step,
            trained=self.trainable,
            optimizer=self.master,
            progress={"run": self.run, **self.recorder.progress()},
            trainer_state=self.state,
        )

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self.progress = ckpt.read_progress(Path(resume_from_checkpoint), self.run)
        ckpt.restore_trained(Path(resume_from_checkpoint), self.trainable, self.progress)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        ckpt.restore_optimizer(Path(checkpoint), self.master)
        seek(self.lr_scheduler, int(self.progress["step"]))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            ckpt.restore_random(Path(checkpoint))


def seek(scheduler: LambdaLR, step: int) -> None:
    """Put a schedule, and the learning rates of its optimiser, to where they are after ``step`` steps."""
    scheduler.last_epoch = step
    scheduler._last_lr = [
        base * factor(step) for base, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
    ]
    for group, lr in zip(scheduler.optimizer.param_groups, scheduler._last_lr, strict=True):
        group["lr"] = lr


class StepCallback(TrainerCallback):
    """Checks the first gradients and hands every finished step to the recorder."""

    def __init__(self, trainer: RoutingTrainer) -> None:
        self.trainer = trainer
        self.learning_rate = 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.trainer.recorder.start()

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == 0:
            conditional = {
                id(parameter)
                for method in attached(self.trainer.model)
                for parameter in method.conditional_parameters()
            }
            check_gradients({name: p for name, p in self.trainer.trainable.items() if id(p) not in conditional})
        self.learning_rate = self.trainer.master.param_groups[0]["lr"]

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        trainer = self.trainer
        own = any(method.has_own_loss for method in attached(trainer.model))
        losses = torch.tensor([trainer.step_loss, trainer.step_router_loss], dtype=torch.float64)
        loss, router_loss = processes.add_up(losses).tolist()
        trainer.recorder.record(
            loss=loss - router_loss,
            router_loss=router_loss if own else None,
            learning_rate=self.learning_rate,
            grad_norm=trainer.grad_norm,
        )
        trainer.step_loss = trainer.step_router_loss = 0.0
