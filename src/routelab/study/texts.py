"""Token sequences that a study looks at, one after the other: nothing is kept of a text once it has been read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from routelab.data.chat import to_messages
from routelab.data.mini_world import MiniWorld
from routelab.errors import EvaluationError
from routelab.evaluate.prompts import Prompt, encode
from routelab.evaluate.tasks import Task, task_with
from routelab.hosts.locate import locate
from routelab.methods.attachment import added_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

#: Worked problems of the mini-world before one that is asked: what few-shot GSM8K is to a large host.
FEW_SHOT = "mini-few-shot"


@dataclass(frozen=True)
class StudyText:
    """One text: its name, the task it belongs to, its token ids."""

    id: str
    task: str
    ids: Sequence[int]


def study_texts(
    tokenizer: PreTrainedTokenizerBase,
    task: str,
    *,
    limit: int,
    options: Mapping[str, Any] | None = None,
    longest: int | None = None,
) -> Iterator[StudyText]:
    """Yield the first ``limit`` texts of a task: its prompts, with the right choice where there are choices, and whole
    chats where the task is a loss.

    Args:
        task: a task of :mod:`routelab.evaluate.tasks`, or ``mini-few-shot`` (option ``shots``, 5 by default).
        longest: longer texts are cut to this many tokens.

    Raises:
        EvaluationError: no such task or option.
        DataError: the task's data cannot be read.
    """
    prompts = _few_shot(limit, options or {}) if task == FEW_SHOT else _prompts(task_with(task, limit, options or {}))
    for name, prompt, reply in prompts:
        ids = encode(tokenizer, prompt)
        if reply:
            ids += tokenizer(reply, add_special_tokens=False)["input_ids"]
        yield StudyText(name, task, ids[:longest])


def run_text(model: PreTrainedModel, ids: Sequence[int], *, routing: bool = False) -> dict[int, Tensor] | None:
    """Run one text without a cache; with ``routing`` return the raw router logits ``[n, E]`` by routed layer.

    Call it without gradients. Methods that ask which tokens are the prompt are told that all are.
    """
    batch = torch.tensor([list(ids)], device=model.device)
    added = {"prompt_mask": torch.ones_like(batch, dtype=torch.bool)} if "prompt_mask" in added_arguments(model) else {}
    wanted = {"output_router_logits": True} if routing else {}
    output = model(input_ids=batch, use_cache=False, logits_to_keep=1, **wanted, **added)
    if not routing:
        return None
    return {layer.index: logits for layer, logits in zip(locate(model).routed, output.router_logits, strict=True)}


def _prompts(task: Task) -> Iterator[tuple[str, Prompt, str]]:
    for example in task.examples:
        if task.kind == "loss":
            yield str(example["id"]), example["messages"], ""
        elif task.kind == "choice":
            yield str(example["id"]), example["prompt"], example["choices"][example["gold"]]
        else:
            yield str(example["id"]), example["prompt"], ""


def _few_shot(limit: int, options: Mapping[str, Any]) -> Iterator[tuple[str, Prompt, str]]:
    unknown = sorted(set(options) - {"shots"})
    shots = options.get("shots", 5)
    if unknown or type(shots) is not int or shots < 0:
        raise EvaluationError(f"{FEW_SHOT} takes one option, shots, a number of at least 0; got {dict(options)}")
    world = MiniWorld(0)
    # Every text has worked problems of its own: texts that share them would look more alike than they are.
    worked = world.arithmetic_stream("train", shots * limit, draw="shots")
    for row in world.arithmetic_stream("test", limit):
        *solved, asked = to_messages([*islice(worked, shots), row], "arithmetic")
        yield row["id"], [*(turn for each in solved for turn in each["messages"]), *asked["messages"][:-1]], ""
