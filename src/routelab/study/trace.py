"""What the routers of a model do with one prompt, token by token and layer by layer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from routelab.errors import EvaluationError, LayerError
from routelab.hosts.locate import locate
from routelab.hosts.observe import first_token_mass
from routelab.hosts.routing import select_experts
from routelab.methods.aar.method import AAR
from routelab.methods.attachment import attached

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Step:
    """One token in one layer.

    Attributes:
        experts: chosen experts, by falling weight; ``weights`` as the host uses them.
        gates: per view of attention-aware routing, the mean gate of the chosen experts; empty without it.
        first_token: attention weight on the first token, mean over heads; None where the layer has no softmax
            attention.
    """

    position: int
    token: str
    layer: int
    experts: list[int]
    weights: list[float]
    gates: dict[str, float]
    first_token: float | None


@dataclass(frozen=True)
class Trace:
    """Every step of one prompt, by layer and then by position."""

    prompt: str
    methods: list[str]
    layers: list[int]
    steps: list[Step]

    def only(self, layers: Collection[int] | None) -> Trace:
        """Return the trace of some layers; None or nothing means all.

        Raises:
            LayerError: a layer has no router.
        """
        if not layers:
            return self
        unknown = sorted(set(layers) - set(self.layers))
        if unknown:
            raise LayerError(f"layers {unknown} have no router here; layers that have one: {self.layers}")
        return replace(
            self,
            layers=[layer for layer in self.layers if layer in layers],
            steps=[step for step in self.steps if step.layer in layers],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def trace(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> Trace:
    """Run ``text``, already rendered with the chat template where one is wanted, and note every routing decision.

    Raises:
        HostError: the model is of no supported family.
        EvaluationError: the text has no token.
    """
    host = locate(model)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"].to(model.device)
    if not ids.shape[1]:
        raise EvaluationError("the prompt has no token to trace")
    with torch.no_grad(), _gates(model) as gates, first_token_mass(model) as mass:
        output = model(input_ids=ids, use_cache=False, output_router_logits=True)
    tokens = [tokenizer.decode([token]) for token in ids[0].tolist()]
    steps = []
    for layer, logits in zip((layer.index for layer in host.routed), output.router_logits, strict=True):
        _, weights, experts = select_experts(
            logits.float(), top_k=host.top_k, renormalise=host.renormalises, dtype=torch.float32
        )
        means = {view: gate.gather(-1, experts).mean(-1).tolist() for view, gate in gates.get(layer, {}).items()}
        first = mass[layer].tolist() if layer in mass else None
        for i, token in enumerate(tokens):
            steps.append(
                Step(
                    position=i,
                    token=token,
                    layer=layer,
                    experts=experts[i].tolist(),
                    weights=[round(weight, 4) for weight in weights[i].tolist()],
                    gates={view: round(values[i], 4) for view, values in means.items()},
                    first_token=None if first is None else round(first[i], 4),
                )
            )
    names = [str(method.summary()) for method in attached(model)]
    return Trace(text, names, [layer.index for layer in host.routed], steps)


@contextmanager
def _gates(model: PreTrainedModel) -> Iterator[dict[int, dict[str, Tensor]]]:
    """Collect the gates ``[tokens, experts]`` of every view, per layer, of attention-aware routers."""
    found: dict[int, dict[str, Tensor]] = {}

    def watch(layer: int) -> Any:
        def hook(router: Any, inputs: tuple[Tensor, Tensor, Tensor]) -> None:
            hidden, _, window = inputs
            found[layer] = router.gates(hidden, window)

        return hook

    routers = [pair for method in attached(model) if isinstance(method, AAR) for pair in method.routers()]
    handles = [router.register_forward_pre_hook(watch(layer)) for layer, router in routers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
