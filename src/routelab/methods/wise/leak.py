"""How much a token learns from later tokens of its own block, through the support that it shares with them.

The mass of eq. 5 is a mean over a whole query block. A late token can move it, and with it the support of every earlier
token of the block, so a teacher-forced loss under the paper's supports is not that of a causal model. With
``WISEConfig(causal=True)`` the leak is zero, as it is for full attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from routelab.errors import EvaluationError
from routelab.hosts.recurrent.model import RecurrentForCausalLM
from routelab.methods.wise.config import WISEConfig
from routelab.methods.wise.engine import running


@dataclass(frozen=True)
class Leak:
    """What changing one token did to the tokens before it in its block, over all changes tried.

    Attributes:
        changes: tokens changed, each in a forward of its own. tokens: earlier tokens looked at, all together.
        largest_logit: the largest change of a logit. mean_divergence: the mean of KL(p ‖ p′) in nats.
        mean_log_probability: the mean change, either way, of the log-probability of the token that follows: what a
            teacher-forced loss of that token is uncertain by.
        answers_changed: the share of the earlier tokens whose most likely next token changed.
    """

    changes: int
    tokens: int
    largest_logit: float
    mean_divergence: float
    mean_log_probability: float
    answers_changed: float


@torch.no_grad()
def support_leak(
    model: RecurrentForCausalLM,
    input_ids: Tensor,
    config: WISEConfig | None = None,
    *,
    positions: Sequence[int] | None = None,
    **inputs: Any,
) -> Leak:
    """Change one token at a time to the next of the vocabulary, and look at the logits before it in its block.

    Args:
        model: the host; what is attached to it does not matter.
        input_ids: ``[1, S]`` without padding.
        config: the method, by default the paper's.
        positions: the tokens to change, by default the last one of every whole block.
        inputs: of the model's forward, such as ``num_steps`` and ``seed``.

    Raises:
        EvaluationError: not one row, or a position that has no earlier token in its block.
    """
    config = WISEConfig() if config is None else config
    size, length = config.block_size, input_ids.shape[1]
    places = list(range(size - 1, length, size)) if positions is None else list(positions)
    wrong = [place for place in places if not 0 <= place < length or place % size == 0]
    if input_ids.shape[0] != 1 or not places or wrong:
        raise EvaluationError(
            f"a leak is measured on one row and at tokens that are not the first of their block of {size}; got "
            f"{tuple(input_ids.shape)} and positions {wrong or places}"
        )
    differences, divergences, losses, answers = [], [], [], []
    with running(model, config):
        before = model(input_ids, **inputs).logits[0].double()
        for place in places:
            changed = input_ids.clone()
            changed[0, place] = (changed[0, place] + 1) % model.config.vocab_size
            after = model(changed, **inputs).logits[0].double()
            earlier = slice(place - place % size, place)
            old, new = before[earlier].log_softmax(-1), after[earlier].log_softmax(-1)
            follows = input_ids[0, earlier.start + 1 : place + 1, None]
            differences.append((before[earlier] - after[earlier]).abs().amax())
            divergences.append((old.exp() * (old - new)).sum(-1))
            losses.append((old - new).gather(-1, follows)[:, 0].abs())
            answers.append(old.argmax(-1) != new.argmax(-1))
    return Leak(
        changes=len(places),
        tokens=sum(map(len, answers)),
        largest_logit=torch.stack(differences).max().item(),
        mean_divergence=torch.cat(divergences).mean().item(),
        mean_log_probability=torch.cat(losses).mean().item(),
        answers_changed=torch.cat(answers).double().mean().item(),
    )


def generation_gap(
    model: RecurrentForCausalLM, input_ids: Tensor, prompt: int, config: WISEConfig | None = None, **inputs: Any
) -> float:
    """Return the largest difference between the logits after ``prompt`` tokens of one forward over ``input_ids [B, S]``
    and those of token by token with a cache, which sees no later token; full attention and the causal form have none.

    Raises:
        EvaluationError: ``prompt`` leaves nothing to compare.
    """
    if not 1 <= prompt < input_ids.shape[1]:
        raise EvaluationError(f"prompt must leave tokens to compare: 1 to {input_ids.shape[1] - 1}, not {prompt}")
    with torch.no_grad(), running(model, WISEConfig() if config is None else config):
        whole = model(input_ids, **inputs).logits[:, prompt:]
        output = model(input_ids[:, :prompt], use_cache=True, **inputs)
        steps = []
        for place in range(prompt, input_ids.shape[1]):
            output = model(input_ids[:, place : place + 1], cache=output.cache, **inputs)
            steps.append(output.logits)
    return (whole - torch.cat(steps, 1)).abs().max().item()
