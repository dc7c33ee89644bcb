"""Answers generated for many prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from routelab.errors import EvaluationError
from routelab.evaluate.decoding import Row, compute_prefix, decode, row_generator, shared_length
from routelab.evaluate.prompts import Prompt, encode, end_ids, render
from routelab.evaluate.stopping import Stops
from routelab.methods.attachment import added_arguments, reads_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def generate_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    *,
    ids: Sequence[str] | None = None,
    max_new_tokens: int = 256,
    batch_size: int = 64,
    num_samples: int = 1,
    temperature: float = 0.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    share_prefix: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Generate ``num_samples`` answers to every prompt, greedily (``temperature=0``) or by sampling.

    Sampling uses one random stream per (seed, id, sample): a sequence does not depend on the batch it ran in, its
    order or its size, apart from rounding in the logits. ``model`` and ``tokenizer`` are left as they were.

    Args:
        prompts: texts, taken as they are, or lists of messages, rendered with the chat template and generation prompt.
        ids: a name for every prompt (default: its number).
        stop: strings that end an answer; the answer is cut before them.
        share_prefix: compute tokens that all prompts begin with once. Turn it off for a method that must see the whole
            prompt in one forward; an attached one that reads the prompt's text or mask turns it off itself.
        on_progress: called with (sequences done, sequences in all) after every batch.

    Returns:
        One record per prompt and sample, in the order of the prompts: ``id``, ``sample``, ``prompt`` (rendered),
        ``output``, ``tokens`` (generated ones, without the end token), ``characters``, ``finished`` (an end token or
        stop string came), ``truncated`` (``max_new_tokens`` ran out).

    Raises:
        EvaluationError: nothing to generate, a number out of range, several samples without a temperature, repeated
            ids, or a prompt that cannot be rendered.
    """
    names = [str(i) for i in range(len(prompts))] if ids is None else [str(name) for name in ids]
    _check(prompts, names, max_new_tokens, batch_size, num_samples, temperature)
    encoded = [encode(tokenizer, prompt) for prompt in prompts]
    rows = [
        Row(
            index=i * num_samples + sample,
            ids=encoded[i],
            generator=row_generator(seed, names[i], sample) if temperature else None,
        )
        for i in range(len(prompts))
        for sample in range(num_samples)
    ]
    stops = Stops(tokenizer, stop)
    ends = end_ids(model, tokenizer)
    by_length = sorted(rows, key=lambda row: -len(row.ids))
    with evaluating(model):
        whole = not share_prefix or "prompt_mask" in added_arguments(model) or reads_text(model)
        shared = 0 if whole else shared_length(encoded)
        prefix = compute_prefix(model, encoded[0][:shared])
        for start in range(0, len(rows), batch_size):
            batch = by_length[start : start + batch_size]
            decode(
                model,
                batch,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                ends=ends,
                stops=stops,
                prefix=prefix,
            )
            if on_progress is not None:
                on_progress(start + len(batch), len(rows))
    records = []
    for row in rows:
        example, sample = divmod(row.index, num_samples)
        text = tokenizer.decode(row.generated, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        output = stops.cut(text)
        records.append(
            {
                "id": names[example],
                "sample": sample,
                "prompt": render(tokenizer, prompts[example]),
                "output": output,
                "tokens": len(row.generated),
                "characters": len(output),
                "finished": row.finished,
                "truncated": not row.finished,
            }
        )
    return records


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Run in evaluation mode and without gradients; the modes of all modules are as before afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _check(
    prompts: Sequence[Prompt],
    names: Sequence[str],
    max_new_tokens: int,
    batch_size: int,
    num_samples: int,
    temperature: float,
) -> None:
    if not prompts:
        raise EvaluationError("there is no prompt to answer")
    if len(names) != len(prompts) or len(set(names)) != len(names):
        raise EvaluationError(
            f"{len(prompts)} prompts need as many different ids, got {len(set(names))} of {len(names)}"
        )
    for name, value in (("max_new_tokens", max_new_tokens), ("batch_size", batch_size), ("num_samples", num_samples)):
        if value < 1:
            raise EvaluationError(f"{name} must be at least 1, got {value}")
    if temperature < 0:
        raise EvaluationError(f"temperature must not be negative, got {temperature}")
    if num_samples > 1 and not temperature:
        raise EvaluationError(f"{num_samples} samples at temperature 0 would all be equal; set a temperature")
