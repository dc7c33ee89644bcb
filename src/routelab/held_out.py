"""The held-out texts on which a run looks inside its models: the same for every arm and seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelab.evaluate.loglikelihood import continued
from routelab.evaluate.prompts import render
from routelab.evaluate.tasks import Task, task_with
from routelab.recipe import TaskSpec
from routelab.rundir import BASE, RunDirectory, read_jsonl
from routelab.study.task_experts import Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HELD_OUT = 24
"""Number of texts of a task."""


def held_out_texts(spec: TaskSpec, run: RunDirectory, tokenizer: PreTrainedTokenizerBase) -> list[Text]:
    """Return the first texts of an evaluation. Where it has answers they are the host's own, from its records."""
    texts = []
    for prompt, reply in _pairs(task_with(spec.task, spec.limit, spec.options), run, tokenizer):
        ids, scored = continued(tokenizer, prompt, reply, special=False)
        texts.append(Text(ids, list(scored).index(True)))
    return texts


def _pairs(task: Task, run: RunDirectory, tokenizer: PreTrainedTokenizerBase) -> list[tuple[str, str]]:
    examples = task.examples[:HELD_OUT]
    if task.kind == "loss":
        return [_last_reply(example["messages"], tokenizer) for example in examples]
    if task.kind == "choice":
        return [(render(tokenizer, each["prompt"]), each["choices"][each["gold"]]) for each in examples]
    records = read_jsonl(run.scored(BASE, None, task.name).with_suffix(".jsonl"))
    first = {record["id"]: record for record in reversed(records)}
    return [(first[example["id"]]["prompt"], first[example["id"]]["output"]) for example in examples]


def _last_reply(messages: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    whole = str(tokenizer.apply_chat_template(messages, tokenize=False))
    last = max(i for i, message in enumerate(messages) if message["role"] == "assistant")
    prompt = render(tokenizer, messages[:last])
    return prompt, whole[len(prompt) :]
