"""Task-expert alignment of a model, on given texts of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from routelab.evaluate.generate import evaluating
from routelab.hosts.locate import Host, locate
from routelab.methods.attachment import added_arguments
from routelab.study.alignment import active_experts, count_choices, measures
from routelab.study.experts import chosen_experts

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Text:
    """Token ids, the first ``prompt`` of which are the prompt; the rest is the reply."""

    ids: Sequence[int]
    prompt: int


def task_experts(model: PreTrainedModel, texts: Mapping[str, Sequence[Text]]) -> dict[str, Any]:
    """Return which experts each task's texts use, and the measures of it, as plain data.

    Every token counts, of the prompt and of the reply. To :func:`routelab.study.alignment.measures` are added
    ``tokens`` per task; ``active_parameters`` per task, those of its active experts in every layer and all that are not
    in a routed expert; ``parameters``, all; and ``gradient``, the norm per layer of the gradient that the router
    weights get from the language-model loss alone (mean over the replies' tokens of all texts).

    Raises:
        EvaluationError: a task has no text.
        HostError: the model is of no supported family.
    """
    host = locate(model)
    every = [text for group in texts.values() for text in group]
    experts, layers = chosen_experts(model, [text.ids for text in every], [text.prompt for text in every])
    tokens = [sum(len(text.ids) for text in group) for group in texts.values()]
    of_token = np.repeat(np.arange(len(texts)), tokens)
    counts = count_choices(experts, of_token, num_tasks=len(texts), num_experts=host.num_experts)
    sizes = np.array([_expert_parameters(host, layer) for layer in layers])
    parameters = sum(parameter.numel() for parameter in model.parameters())
    elsewhere = parameters - int(sizes.sum()) * host.num_experts
    active = elsewhere + (active_experts(counts) * sizes[:, None]).sum(0)
    return measures(counts, layers, list(texts)) | {
        "tokens": dict(zip(texts, tokens, strict=True)),
        "active_parameters": [int(each) for each in active],
        "parameters": parameters,
        "gradient": router_gradient_norms(model, every),
    }


def router_gradient_norms(model: PreTrainedModel, texts: Sequence[Text]) -> dict[str, float]:
    """Return ``‖∂CE/∂W_r‖`` of every router: zero where the language-model loss cannot train it.

    ``CE`` is the mean over the reply tokens of all texts. Flags and gradients of the model are as before afterwards.
    """
    routers = locate(model).routers
    weights = [router.weight for router in routers.values()]
    flags = [weight.requires_grad for weight in weights]
    replies = sum(len(text.ids) - text.prompt for text in texts)
    totals = [torch.zeros_like(weight, dtype=torch.float32) for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        with evaluating(model), torch.enable_grad():
            for text in texts:
                loss = _reply_loss(model, text) / replies
                for total, gradient in zip(totals, torch.autograd.grad(loss, weights), strict=True):
                    total += gradient.float()
    finally:
        for weight, flag in zip(weights, flags, strict=True):
            weight.requires_grad_(flag)
    return {str(index): float(total.norm()) for index, total in zip(routers, totals, strict=True)}


def _reply_loss(model: PreTrainedModel, text: Text) -> torch.Tensor:
    ids = torch.tensor([list(text.ids)], device=model.device)
    asks = "prompt_mask" in added_arguments(model)
    added = {"prompt_mask": (torch.arange(len(text.ids)) < text.prompt)[None]} if asks else {}
    logits = model(input_ids=ids, use_cache=False, **added).logits[0, text.prompt - 1 : -1]
    return torch.nn.functional.cross_entropy(logits.float(), ids[0, text.prompt :], reduction="sum")


def _expert_parameters(host: Host, layer: int) -> int:
    experts = host.layers[layer].experts
    assert experts is not None
    return sum(parameter.numel() for parameter in experts.parameters()) // host.num_experts
