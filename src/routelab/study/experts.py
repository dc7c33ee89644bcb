"""Which experts a model chooses on given texts, and how far two choices agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from routelab.errors import EvaluationError
from routelab.hosts.locate import locate
from routelab.methods.attachment import added_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def chosen_experts(
    model: PreTrainedModel, sequences: Sequence[Sequence[int]], prompts: Sequence[int] | None = None
) -> tuple[np.ndarray, list[int]]:
    """Return the experts chosen for every token of some token sequences.

    Args:
        prompts: how many tokens of each sequence are its prompt, for methods that decide on the prompt; None: all.

    Returns:
        ``(experts, layers)``: ``experts [L, T, k]`` uint16, ascending in the last axis, for the L routed layers
        named by ``layers`` and the T tokens of all sequences in order.
    """
    host = locate(model)
    parts = []
    on_prompt = prompts is not None and "prompt_mask" in added_arguments(model)
    with torch.no_grad():
        for i, ids in enumerate(sequences):
            batch = torch.tensor([list(ids)], device=model.device)
            added = {"prompt_mask": torch.arange(len(ids))[None] < prompts[i]} if on_prompt and prompts else {}
            logits = model(input_ids=batch, use_cache=False, output_router_logits=True, **added).router_logits
            chosen = torch.stack([layer.float().topk(host.top_k, dim=-1).indices for layer in logits])
            parts.append(chosen.sort(dim=-1).values.cpu().numpy().astype(np.uint16))
    if not parts:
        raise EvaluationError("there is no text to record chosen experts on")
    return np.concatenate(parts, axis=1), [layer.index for layer in host.routed]


def agreement(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the share of chosen experts in common, ``|A ∩ B| / k``, averaged over tokens.

    Args:
        first, second: ``[L, T, k]``.

    Returns:
        ``[L]``.

    Raises:
        EvaluationError: the two were not recorded on the same layers and tokens with the same k.
    """
    if first.shape != second.shape:
        raise EvaluationError(f"choices of shape {first.shape} and {second.shape} were not recorded on the same texts")
    common = (first[..., :, None] == second[..., None, :]).any(-1)
    return np.asarray(common.mean(axis=(1, 2)))
