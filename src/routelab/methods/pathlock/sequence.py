"""Where the mode of every sequence comes from in one forward call, and where it stays until the next.

In the backbone's forward, in this order:

1. ``routing_index``, given by the caller: ``[B]``, a mode per sequence, or ``[B, S]``, a mode per token.
2. The cache: it carries the modes of its rows from the call that filled it first, whatever has been written since.
3. The control words in ``input_ids``. A row without a mask whose ``position_ids`` restart is packed: every document has
   its own mode.

``generate`` sees the whole prompt before any of it is cut into chunks, so it decides there and passes
``routing_index`` on; a conversation continued with a cache takes the mode of its latest turn.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import Cache

from routelab.errors import ModeError
from routelab.hosts.cache_rows import RowModes, remember, require_followable, row_modes
from routelab.hosts.calls import call_arguments
from routelab.hosts.generation import ignore_argument
from routelab.methods.pathlock.layer import Plan, plan_rows, plan_tokens
from routelab.methods.pathlock.resolve import ModeResolver, visible_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: The argument of a call that names the modes, and the one that carries them from the backbone to its layers.
ARGUMENT = "routing_index"
ROUTED = "routelab_routed"


@dataclass(frozen=True)
class Routed:
    """What one forward goes by: the plan of its tokens, and the modes of its rows where each row has just one."""

    plan: Plan
    rows: RowModes | None


class SequenceModes:
    """Hooks on a backbone: resolve the modes before it runs, leave them on the cache after."""

    def __init__(self, resolver: ModeResolver) -> None:
        self.resolver = resolver

    def before(self, backbone: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hand what this forward goes by to the layers, in place of ``routing_index``."""
        given = call_arguments(backbone, args, kwargs)
        inputs = given.get("input_ids")
        inputs = given.get("inputs_embeds") if inputs is None else inputs
        if inputs is None:
            return None  # the backbone says itself what is missing
        index = given.get(ARGUMENT)
        cache = _cache(given)
        kept = row_modes(cache)
        if index is not None:
            routed = _as_given(index, kept, inputs)
        elif kept is not None:
            if len(kept.modes) != len(inputs):
                raise ModeError(f"the cache holds the modes of {len(kept.modes)} sequences, the call has {len(inputs)}")
            routed = _by_row(kept, inputs)
        elif cache is not None and int(cache.get_seq_length()):
            raise ModeError("the cache was filled without a mode for each of its rows; pass routing_index")
        else:
            routed = self._read(given, inputs)
        return args, {**{name: value for name, value in kwargs.items() if name != ARGUMENT}, ROUTED: routed}

    def after(self, backbone: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Leave the modes on the cache, also on one that the backbone made itself."""
        cache = _cache(call_arguments(backbone, args, kwargs))
        if cache is None:
            items = output if isinstance(output, tuple) else output.values()
            cache = next((item for item in items if isinstance(item, Cache)), None)
        if cache is not None and ROUTED in kwargs:
            remember(cache, kwargs[ROUTED].rows)

    def prompt_index(self, input_ids: Tensor, attention_mask: Tensor | None, cache: Any) -> Tensor:
        """Return the modes ``[B]`` of whole prompts; rows that name none keep those of a cache they continue."""
        mask = attention_mask if attention_mask is not None and attention_mask.shape == input_ids.shape else None
        texts = self.resolver.texts(visible_rows(input_ids, mask))
        found, kept = self.resolver.find(texts), row_modes(cache)
        if kept is not None and len(kept.modes) == len(found):
            found = [own if mode is None else mode for mode, own in zip(found, kept.modes, strict=True)]
        return torch.tensor(self.resolver.fill(texts, found), device=input_ids.device)

    def _read(self, given: dict[str, Any], inputs: Tensor) -> Routed:
        ids, mask, positions = (given.get(name) for name in ("input_ids", "attention_mask", "position_ids"))
        if ids is None:
            raise ModeError("inputs_embeds hold no text to find a control word in; pass routing_index")
        mask = mask if isinstance(mask, Tensor) and mask.ndim == 2 else None
        if mask is None and positions is not None and positions.ndim == 2 and positions.shape[1] > 1:
            starts = positions[:, 1:] <= positions[:, :-1]
            if bool(starts.any()):
                return Routed(plan_tokens(self._documents(ids, starts.expand(len(ids), -1)), ids.device), None)
        modes = self.resolver.modes(self.resolver.texts(visible_rows(ids, mask)))
        return _by_row(RowModes(tuple(modes)), inputs)

    def _documents(self, ids: Tensor, starts: Tensor) -> Tensor:
        """Return the mode of every token ``[B, S]`` of packed rows, given where documents after the first begin.

        Padding behind the last document is a document too; it takes the mode of the one before.
        """
        rows: list[list[list[int]]] = []
        for row, begins in zip(ids.tolist(), starts.tolist(), strict=True):
            cuts = [0, *(at + 1 for at, begin in enumerate(begins) if begin), len(row)]
            rows.append([row[start:end] for start, end in pairwise(cuts)])
        real = [
            (r, d) for r, row in enumerate(rows) for d, part in enumerate(row) if not self.resolver.is_padding(part)
        ]
        found = self.resolver.modes(self.resolver.texts([rows[r][d] for r, d in real]))
        modes = dict(zip(real, found, strict=True))
        filled = []
        for r, row in enumerate(rows):
            mode, line = self.resolver.config.default_index, []
            for d, part in enumerate(row):
                mode = modes.get((r, d), mode)
                line += [mode] * len(part)
            filled.append(line)
        return torch.tensor(filled)


def read_index(index: Any, inputs: Tensor) -> Tensor:
    """Return ``routing_index`` as int64 ``[B]`` or ``[B, S]`` on the CPU, for ``inputs [B, S, ...]``.

    Raises:
        ModeError: another shape, no integers, or a mode other than 0 and 1.
    """
    batch, tokens = inputs.shape[:2]
    try:
        modes = torch.as_tensor(index).detach().cpu()
    except (TypeError, ValueError) as error:
        raise ModeError(f"{ARGUMENT} must hold the modes 0 (no_think) and 1 (think), not {index!r}") from error
    if modes.dtype == torch.bool or modes.is_floating_point() or modes.is_complex():
        raise ModeError(f"{ARGUMENT} must hold integers, 0 (no_think) and 1 (think), not {modes.dtype}")
    if tuple(modes.shape) not in {(batch,), (batch, tokens)}:
        raise ModeError(
            f"{ARGUMENT} has shape {tuple(modes.shape)}; it must be [{batch}], a mode per sequence, or "
            f"[{batch}, {tokens}], a mode per token"
        )
    if bool(((modes < 0) | (modes > 1)).any()):
        raise ModeError(
            f"{ARGUMENT} holds {sorted(set(modes.flatten().tolist()))}; the modes are 0 (no_think) and 1 (think)"
        )
    return modes.long()


def _as_given(index: Any, kept: RowModes | None, inputs: Tensor) -> Routed:
    if kept is not None and kept.given is index and len(kept.modes) == len(inputs):
        return _by_row(kept, inputs)  # the tensor of the step before: nothing to read from its device
    modes = read_index(index, inputs)
    if modes.ndim == 2:
        return Routed(plan_tokens(modes, inputs.device), None)
    return _by_row(RowModes(tuple(modes.tolist()), index if isinstance(index, Tensor) else None), inputs)


def _by_row(rows: RowModes, inputs: Tensor) -> Routed:
    return Routed(plan_rows(rows.modes, inputs.shape[1], inputs.device), rows)


def _cache(given: dict[str, Any]) -> Any:
    cache = given.get("cache", given.get("past_key_values"))
    if cache is not None:
        require_followable(cache)
    return cache


def generate(model: PreTrainedModel, kind: type, sequences: SequenceModes, *args: Any, **kwargs: Any) -> Any:
    """``model.generate`` with the modes of the whole prompts, decided before anything of them is cut or expanded.

    Raises:
        ModeError: a prompt names no mode or both, or ``routing_index`` is not ``[B]`` of modes.
    """
    ids = kwargs.get("input_ids", args[0] if args else kwargs.get("inputs"))
    index = kwargs.pop(ARGUMENT, None)
    if index is not None:
        prompt = ids if ids is not None else kwargs.get("inputs_embeds")
        if prompt is not None:
            index = read_index(index, prompt[:, :0]).to(prompt.device)
    elif ids is not None and ids.numel():
        index = sequences.prompt_index(ids, kwargs.get("attention_mask"), kwargs.get("cache"))
    assistant = kwargs.get("assistant_model")
    with ExitStack() as undone:
        if assistant is not None and not _carries(assistant):
            undone.callback(ignore_argument(assistant, ARGUMENT))
        return kind.generate(model, *args, **kwargs, **({} if index is None else {ARGUMENT: index}))  # type: ignore[attr-defined]


def _carries(model: PreTrainedModel) -> bool:
    return ARGUMENT in inspect.signature(model.prepare_inputs_for_generation).parameters
