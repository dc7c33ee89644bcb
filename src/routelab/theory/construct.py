"""Theorems 4.1 and 4.2 of arXiv 2606.14398 as exact weights: knowledge in, a one-layer transformer out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from routelab.data.knowledge import Knowledge, KnowledgeTokenizer
from routelab.errors import ConfigError, closest
from routelab.hosts.one_layer import OneLayerForCausalLM
from routelab.theory.codes import Codes
from routelab.theory.gates import Gates
from routelab.theory.memorising import LEVELS, WORD, Memoriser
from routelab.theory.neurons import Neuron
from routelab.theory.prefixes import Prefix, prefixes_of
from routelab.theory.router import name_router, refuse_shared_prefixes, template_router
from routelab.theory.states import prefix_states
from routelab.theory.stream import Stream

ROUTERS = ("auto", "template")


@dataclass(frozen=True)
class Construction:
    """A constructed model and what each of its neurons is for.

    ``layout`` holds, for every expert, the meaning of its neurons in order; the dense model is one expert. ``router``
    is ``"auto"`` or ``"template"``, None for the dense model.
    """

    model: OneLayerForCausalLM
    tokenizer: KnowledgeTokenizer
    knowledge: Knowledge
    eps: float
    router: str | None
    layout: tuple[tuple[Neuron, ...], ...]

    @cached_property
    def codes(self) -> Codes:
        """The numbers of words and names, which follow from the knowledge."""
        return Codes.of(self.knowledge, self.tokenizer)

    def circuit(self, task: int) -> int:
        """The number of neurons, of all experts, that are part of a task's circuit."""
        return sum(task in neuron.tasks for expert in self.layout for neuron in expert)


def construct_dense(knowledge: Knowledge, eps: float = 0.01) -> Construction:
    """Build the dense transformer of Theorem 4.1: probability above ``1 - eps`` on the valid next tokens.

    Raises:
        ConfigError: ``eps`` is not between 0 and 1.
    """
    return _construct(knowledge, eps, None)


def construct_moe(knowledge: Knowledge, eps: float = 0.01, router: str = "auto") -> Construction:
    """Build the mixture-of-experts transformer of Theorem 4.2: one expert for every task.

    Args:
        router: ``"template"`` is the paper's router, which reads the template head alone. ``"auto"`` is an extension
            that also reads names; a prefix that several tasks begin with goes to the first of them.

    Raises:
        ConfigError: ``eps`` is not between 0 and 1, an unknown router, or, with ``"template"``, two tasks share a
            template prefix; the error names the prefixes.
    """
    if router not in ROUTERS:
        raise ConfigError(f"unknown router {router!r}{closest(router, ROUTERS)}")
    return _construct(knowledge, eps, router)


def _construct(knowledge: Knowledge, eps: float, router: str | None) -> Construction:
    if not 0 < eps < 1:
        raise ConfigError(f"eps must be between 0 and 1, not {eps}")
    tokenizer = KnowledgeTokenizer(knowledge)
    codes = Codes.of(knowledge, tokenizer)
    if router == "template":
        refuse_shared_prefixes(codes)
    prefixes = prefixes_of(knowledge, tokenizer)
    stream = Stream.of(codes, width_bound(knowledge), _needs_value(prefixes, router))
    experts = len(knowledge.tasks) if router else 1
    weights = np.zeros((experts, stream.width))
    routed: list[list[Prefix]] = [prefixes] + [[] for _ in range(experts - 1)]
    if experts > 1:
        classes = _classes(stream, prefixes)
        states = _states(stream, [group[0] for group in classes])
        if router == "template":
            weights = template_router(codes, stream)
        else:
            weights = name_router(codes, stream, [group[0].tasks[0] for group in classes], states)
        routed = [[] for _ in range(experts)]
        for group, expert in zip(classes, (states @ weights.T).argmax(1).tolist(), strict=True):
            routed[expert] += group
    memoriser = Memoriser(stream, Gates(stream), circuits=router is None)
    layout = tuple(tuple(memoriser.neurons(each)) for each in routed)
    model = _empty(stream, [max(1, len(each)) for each in layout])
    with torch.no_grad():
        stream.write(model)
        if model.model.router is not None:
            model.model.router.weight.copy_(torch.from_numpy(weights))
        _write_experts(model, memoriser, layout)
        _write_output(model, eps)
    return Construction(model, tokenizer, knowledge, eps, router, layout)


def width_bound(knowledge: Knowledge) -> int:
    """``2 L |T|``, with every template counted once."""
    templates = {template for task in knowledge.tasks for template in task.templates}
    return 2 * knowledge.max_length * len(templates)


def _needs_value(prefixes: Sequence[Prefix], router: str | None) -> bool:
    """Whether, after both names, shape and key do not tell what follows, or the task that a router must find."""
    allowed: dict[tuple[tuple[int, ...], int], frozenset[int]] = {}
    tasks: dict[tuple[tuple[int, ...], int], int] = {}
    for prefix in prefixes:
        if prefix.names == 2:
            seen = prefix.shape, prefix.key
            allowed[seen] = allowed.get(seen, prefix.valid) & prefix.valid
            if not allowed[seen] or (router == "auto" and tasks.setdefault(seen, prefix.tasks[0]) != prefix.tasks[0]):
                return True
    return False


def _classes(stream: Stream, prefixes: Sequence[Prefix]) -> list[list[Prefix]]:
    """Group the prefixes that are one to a router: those of one shape whose names have the same features."""
    classes: dict[tuple[tuple[int, ...], int], list[Prefix]] = defaultdict(list)
    for prefix in prefixes:
        classes[prefix.shape, stream.codes.signature(prefix, stream.sees_value)].append(prefix)
    return list(classes.values())


def _states(stream: Stream, prefixes: Sequence[Prefix]) -> np.ndarray:
    model = _empty(stream, [1])
    with torch.no_grad():
        stream.write(model)
    return prefix_states(model, prefixes).numpy()


def _empty(stream: Stream, sizes: list[int]) -> OneLayerForCausalLM:
    model = OneLayerForCausalLM(stream.config(sizes)).to(torch.float64).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        parameter.zero_()
    return model


def _write_experts(model: OneLayerForCausalLM, memoriser: Memoriser, layout: Sequence[Sequence[Neuron]]) -> None:
    """Neuron *i* reads its conditions and writes ``R^level (cos θ, sin θ)`` of its token."""
    vocabulary = model.config.vocab_size
    for index, neurons in enumerate(layout):
        expert = model.model.expert(index)
        gates = [memoriser.gate(each) for each in neurons]
        radius = _outvote(vocabulary, neurons) * max((gate.highest for gate in gates if gate), default=1.0)
        up, bias, down = (each.numpy() for each in (expert.up.weight, expert.up.bias, expert.down.weight))
        for at, (neuron, gate) in enumerate(zip(neurons, gates, strict=True)):
            row = neuron.row(memoriser.stream, gate)
            up[at, list(row.coefficients)] = list(row.coefficients.values())
            bias[at] = row.constant
            angle = 2 * math.pi * neuron.token / vocabulary
            down[:2, at] = radius**neuron.level * math.cos(angle), radius**neuron.level * math.sin(angle)


def _outvote(vocabulary: int, neurons: Sequence[Neuron]) -> float:
    """R: so large that all lower levels together turn an output by at most a small part of the angle of a token."""
    facts = Counter(neuron.key for neuron in neurons if neuron.level < WORD)
    together = max(facts.values(), default=0) + LEVELS
    return float(4 * vocabulary * together)


def _write_output(model: OneLayerForCausalLM, eps: float) -> None:
    """``W_U = γ (cos θ_w, sin θ_w)`` on the two output coordinates: Lemma 5.1 with equal angles, and its margin.

    At radius 1 the right token leads its neighbours by ``γ (1 - cos(2π/n))``, and the j-th by more than j times that,
    so all others together have less than ``2 Σ_j exp(-j lead) < ε`` for the γ chosen here.
    """
    vocabulary = model.config.vocab_size
    angles = 2 * math.pi * torch.arange(vocabulary, dtype=torch.float64) / vocabulary
    gamma = 1.05 * math.log(4 / eps) / (2 * math.sin(math.pi / vocabulary) ** 2)
    model.lm_head.weight[:, 0] = gamma * torch.cos(angles)
    model.lm_head.weight[:, 1] = gamma * torch.sin(angles)
