"""One forward of a depth-recurrent host under full attention, with something that looks on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from routelab.errors import EvaluationError, HostError
from routelab.evaluate.generate import evaluating
from routelab.hosts.recurrent.core import CoreAttention, CoreCall, FullCoreAttention
from routelab.hosts.recurrent.model import RecurrentForCausalLM

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Observer(CoreAttention):
    """Runs another core attention and shows :meth:`note` all that goes in and out of it. It changes nothing."""

    def __init__(self, inner: CoreAttention | None = None) -> None:
        self.inner = FullCoreAttention() if inner is None else inner

    def begin(self, call: CoreCall) -> int:
        if call.cached:
            raise EvaluationError("a trajectory is observed on whole prompts: run them without a cache")
        self.open(call)
        return self.inner.begin(call)

    def attend(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = self.inner.attend(step, block, query, key, value)
        self.note(step, block, query, key, value, output)
        return output

    def end(self) -> None:
        self.inner.end()

    @abstractmethod
    def open(self, call: CoreCall) -> None:
        """Forget the forward before; ``call`` begins."""

    @abstractmethod
    def note(self, step: int, block: int, query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> None:
        """Look at one core block at one step: shapes as in :meth:`CoreAttention.attend`, ``output [B, H, S, d]``."""


def run_full(
    model: PreTrainedModel,
    observer: Observer,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    *,
    num_steps: int,
    seed: int = 0,
    initial_state: Tensor | None = None,
    output_states: bool = False,
) -> Tensor | None:
    """Run a batch of prompts with ``observer`` in the place of the core's attention, whatever is attached there.

    Returns:
        With ``output_states`` the core's output after every step, ``[T, B, S, d]``.

    Raises:
        HostError: the model is no depth-recurrent host. EvaluationError: fewer than two steps.
    """
    if not isinstance(model, RecurrentForCausalLM):
        raise HostError(
            f"{type(model).__name__} has no recurrent core to look into; load a depth-recurrent host, such as "
            "mini-recurrent, with routelab.load_host"
        )
    if num_steps < 2:
        raise EvaluationError(f"num_steps={num_steps} has no transition between steps; take at least 2")
    with evaluating(model), _in_place(model, observer):
        output = model(
            input_ids=input_ids.to(model.device),
            attention_mask=None if attention_mask is None else attention_mask.to(model.device),
            num_steps=num_steps,
            seed=seed,
            initial_state=initial_state,
            output_states=output_states,
            use_cache=False,
            logits_to_keep=1,
        )
    states: Tensor | None = output.states
    return states


@contextmanager
def _in_place(model: RecurrentForCausalLM, attention: CoreAttention) -> Iterator[None]:
    before = model.core_attention
    model.core_attention = attention
    try:
        yield
    finally:
        model.core_attention = before
