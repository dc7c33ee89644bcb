"""Placement of task-expert routing in a host, and its removal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from routelab.errors import HostError, LayerError, TrainingError
from routelab.hosts.locate import Host
from routelab.hosts.router_calls import RouterCall, watch_calls
from routelab.hosts.routing import has_router_gradient
from routelab.hosts.swap import specialise
from routelab.methods.base import RouterMethod, Summary
from routelab.methods.taskrouting.config import TaskRoutingConfig
from routelab.methods.taskrouting.layer import experts_of_task, load_balance_loss, membership, task_router_loss
from routelab.methods.taskrouting.sequence import SequenceDecision, SequenceLevel

_UNLABELLED = -100


class TaskRouting(RouterMethod):
    """Task-expert routing, attached: the routers train on the language-model loss and on losses of their own.

    A training call takes ``task_ids`` ``[B, n]``, the place of every token's task in ``config.tasks``, -100 for none;
    where no attention mask says which tokens are padding, ``token_mask`` tells the load-balancing loss. The weighted
    sum of the losses is added to the output's ``loss`` where it has one, and stands in its ``router_loss``; each loss
    by itself stands in ``router_losses``. A call in evaluation mode has them where it is given either argument.
    """

    name = "taskrouting"
    config: TaskRoutingConfig

    def __init__(self, host: Host, config: TaskRoutingConfig) -> None:
        super().__init__(host, config)
        routed = tuple(host.routers)
        self.layers = routed if config.layers is None else tuple(config.layers)
        unknown = [index for index in self.layers if index not in routed]
        if unknown:
            raise LayerError(f"layers {_listed(unknown)} have no router here; layers that have one: {_listed(routed)}")
        if not has_router_gradient(host) and (self.layers != routed or not (config.task_router or config.load_balance)):
            raise HostError(
                f"the routers of this {host.model_type!r} host get no gradient from the language-model loss (top-1 "
                "with renormalised weights), so one without a loss of its own would not train; give every layer a loss"
            )
        self.places = tuple(routed.index(index) for index in self.layers)
        size = host.top_k if config.experts_per_task is None else config.experts_per_task
        self.experts = tuple(
            experts_of_task(task, host.num_experts, size=size, mapping=config.groups)
            for task in range(len(config.tasks))
        )
        self.decision = SequenceDecision() if config.routing == "sequence" else None

    @property
    def claims(self) -> frozenset[str]:
        """What the routers are trained on; where sequences are routed, also how their layers' routers decide.

        Their weights it only trains, as any method of theirs may, so it joins one that changes how routers decide.
        """
        decided = self.layers if self.decision is not None else ()
        return frozenset({"router objective", *(f"layers.{index}.router" for index in decided)})

    @property
    def arguments(self) -> frozenset[str]:
        wanted = {
            "task_ids": self.config.task_router,
            "token_mask": self.config.load_balance,
            "prompt_mask": self.decision is not None,
        }
        return frozenset(name for name, used in wanted.items() if used)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.config.tasks)

    @property
    def has_own_loss(self) -> bool:
        return bool(self.config.task_router or self.config.load_balance)

    def place(self) -> None:
        super().place()
        for place, index in enumerate(self.layers if self.decision is not None else ()):
            attributes = {
                "decision": self.decision,
                "place": place,
                "renormalise": self.host.renormalises,
                "float32_weights": self.host.family.float32_weights,
            }
            self.on_detach(specialise(self.host.routers[index], SequenceLevel, {}, attributes))
        self.on_detach(watch_calls(self.host, self.arguments, self))

    def before_call(self, call: RouterCall) -> bool:
        """Prepare the sequences' decision; return whether this call has losses.

        Raises:
            TrainingError: a training call has no task labels while the task-router loss is on.
        """
        training = self.host.model.training
        if self.decision is not None:
            self.decision.begin(call, training=training)
        wanted = self.has_own_loss and (training or bool({"task_ids", "token_mask"} & call.taken.keys()))
        if wanted and self.config.task_router:
            labels = call.taken.get("task_ids")
            if labels is None or not bool(labels.ne(_UNLABELLED).any()):
                raise TrainingError(
                    f"the task-router loss is on and this batch has no task label; pass task_ids [rows, tokens] with "
                    f"numbers 0 to {len(self.experts) - 1} ({', '.join(self.config.tasks)}), -100 for no task; or set "
                    "task_router to 0"
                )
            outside = labels[labels.ne(_UNLABELLED) & ((labels < 0) | (labels >= len(self.experts)))]
            if len(outside):
                raise TrainingError(
                    f"task_ids holds {int(outside[0])}; the tasks are 0 to {len(self.experts) - 1} "
                    f"({', '.join(self.config.tasks)}), and -100 is none"
                )
        return wanted

    def after_backbone(self, call: RouterCall) -> None:
        if self.decision is not None:
            self.decision.keep(call)

    def after_call(self, call: RouterCall, output: Any) -> None:
        """Add the losses to what the model returns."""
        if not call.logits:
            return
        losses = self.losses(call)
        total = torch.stack([getattr(self.config, name) * loss for name, loss in losses.items()]).sum()
        output.router_losses = {name: loss.detach() for name, loss in losses.items()}
        output.router_loss = total
        if getattr(output, "loss", None) is not None:
            output.loss = output.loss + total.to(output.loss.device)

    def losses(self, call: RouterCall) -> dict[str, Tensor]:
        """Return each loss with a coefficient, averaged over the layers, without its coefficient."""
        labels, counted = call.taken.get("task_ids"), call.taken.get("token_mask", call.real())
        per_layer: dict[str, list[Tensor]] = {}
        for place in self.places:
            logits = call.logits[place]
            if self.config.task_router:
                assert labels is not None
                task = labels.reshape(-1).to(logits.device)
                experts = membership(self.experts, self.host.num_experts).to(logits.device)[task.clamp(min=0)]
                loss = task_router_loss(logits, experts, task.ne(_UNLABELLED))
                per_layer.setdefault("task_router", []).append(loss)
            if self.config.load_balance:
                chosen = logits.topk(self.host.top_k, dim=-1).indices
                mask = None if counted is None else counted.reshape(-1).to(logits.device)
                per_layer.setdefault("load_balance", []).append(load_balance_loss(logits, chosen, mask))
        device = call.logits[self.places[0]].device
        return {name: torch.stack([each.to(device) for each in found]).mean() for name, found in per_layer.items()}

    def summary(self) -> Summary:
        routers = super().summary()
        names = dict(zip(routers.layers, routers.modules, strict=True))
        details: dict[str, Any] = {
            "experts": {task: list(group) for task, group in zip(self.config.tasks, self.experts, strict=True)},
            "losses": {name: getattr(self.config, name) for name in ("task_router", "load_balance")},
            "routing": self.config.routing,
            "routers_trained": len(routers.layers),
        }
        if not has_router_gradient(self.host):
            details["language_model_gradient"] = "none: top-1, renormalised; only the losses above train the routers"
        modules = tuple(names[index] for index in self.layers)
        return replace(routers, layers=self.layers, modules=modules, details=details)


def _listed(indices: Iterable[int]) -> str:
    return ", ".join(map(str, indices))
