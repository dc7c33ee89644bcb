"""The certificate of a construction: every claim of the theorem, recomputed from the weights over every prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from routelab.theory.codes import key_sides
from routelab.theory.construct import Construction, width_bound
from routelab.theory.prefixes import Prefix, prefixes_of
from routelab.theory.reading import Firing, Reader
from routelab.theory.states import prefix_states

FORMAT = 1
_SAMPLE = 32
_EXAMPLES = 10
#: Full forwards and the two-coordinate evaluation may differ by rounding of logits of this relative size.
_AGREEMENT = 1e-6


@dataclass(frozen=True)
class Count:
    """A size and the theorem's bound of it; ``name`` is a task, or empty."""

    value: int
    bound: int
    name: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.bound


@dataclass(frozen=True)
class Certificate:
    """What was checked, as plain data. ``claims`` says of each part of the theorem whether it holds on every prefix.

    Args:
        theorem: ``"4.1"`` (dense) or ``"4.2"`` (mixture of experts).
        router: ``"template"`` (the paper's), ``"auto"`` (the extension), None for the dense model.
        prefixes: how many different prefixes were checked: all, the empty one included.
        heads: attention heads; a third one sees the value, where what follows depends on it.
        N: more than the entries of any table, a table that is read in both directions counted twice.
        least_mass: the smallest probability of V(prefix) over all prefixes, a lower bound.
        least_circuit_mass: of the dense model, the same over each task's prefixes with all neurons outside its circuit
            set to zero.
        neurons: per task, its expert or its circuit, against ``L|T(k)| + N``.
        all_neurons: of the dense model, against ``L|T| + N|K|``.
        off_task: how often a neuron fired on a prefix of none of its tasks.
        shared_prefixes: prefixes, the empty one aside, that several tasks begin with; they go to the first.
        detours: prefixes that the router sends elsewhere, ``examples`` of them with task and expert.
        router_margin, neuron_margin: how narrowly the closest choice of an expert, and of firing or not, was made.
        forward_difference: largest difference in probability between full forwards of a sample and this evaluation.
        tensors: SHA-256 of every tensor.
    """

    format: int
    theorem: str
    router: str | None
    eps: float
    gamma: float
    vocabulary: int
    tasks: int
    L: int
    N: int
    prefixes: int
    heads: int
    width: Count
    neurons: tuple[Count, ...]
    all_neurons: Count
    least_mass: float
    least_circuit_mass: float | None
    off_task: int
    shared_prefixes: int
    detours: int
    examples: tuple[str, ...]
    router_margin: float | None
    neuron_margin: float
    forward_difference: float
    claims: dict[str, bool]
    tensors: dict[str, str]

    @property
    def passed(self) -> bool:
        return all(self.claims.values())

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "passed": self.passed}


@torch.no_grad()
def certify(construction: Construction) -> Certificate:
    """Check the theorem on every prefix of every sentence, from the weights, in float64."""
    model, knowledge = construction.model, construction.knowledge
    prefixes = prefixes_of(knowledge, construction.tokenizer)
    states, reader = prefix_states(model, prefixes).numpy(), Reader(model)
    experts, router_margin = reader.experts(states)
    firing = reader.firing(states, experts, prefixes)
    masses = reader.masses(reader.outputs(states, experts, firing), [each.valid for each in prefixes])
    circuit_mass, off_task = None, 0
    if construction.router is None:
        circuit_mass, off_task = _circuits(construction, reader, states, firing, prefixes)
    detours = _detours(construction, prefixes, experts)
    difference = _forward_difference(construction, prefixes, experts, masses)
    neurons, all_neurons = _neuron_counts(construction)
    output = model.lm_head.weight.numpy()
    width = Count(model.config.hidden_size, width_bound(knowledge))
    least = float(masses.min())
    claims = {
        "probability of the valid next tokens above 1 - eps on every prefix": least > 1 - construction.eps,
        "width within 2L|T|": width.holds,
    }
    if construction.router:
        claims |= {
            "every prefix goes to its task's expert": not detours,
            "every expert within L|T(k)| + N neurons": all(count.holds for count in neurons),
        }
    else:
        claims |= {
            "the circuit of a task alone solves its prefixes": circuit_mass is not None
            and circuit_mass > 1 - construction.eps,
            "neurons outside the task are exactly zero": off_task == 0,
            "every circuit within L|T(k)| + N neurons": all(count.holds for count in neurons),
            "all neurons within L|T| + N|K|": all_neurons.holds,
        }
    claims |= {
        "logits read two coordinates only": not output[:, 2:].any(),
        "full forwards of a sample agree": difference < _AGREEMENT,
    }
    return Certificate(
        format=FORMAT,
        theorem="4.2" if construction.router else "4.1",
        router=construction.router,
        eps=construction.eps,
        gamma=float(np.hypot(output[:, 0], output[:, 1]).max()),
        vocabulary=model.config.vocab_size,
        tasks=len(knowledge.tasks),
        L=knowledge.max_length,
        N=_entries(construction),
        prefixes=len(prefixes),
        heads=model.config.num_heads,
        width=width,
        neurons=neurons,
        all_neurons=all_neurons,
        least_mass=least,
        least_circuit_mass=circuit_mass,
        off_task=off_task,
        shared_prefixes=sum(len(prefix.tasks) > 1 and prefix.tokens != () for prefix in prefixes),
        detours=len(detours),
        examples=tuple(detours[:_EXAMPLES]),
        router_margin=router_margin if np.isfinite(router_margin) else None,
        neuron_margin=min(firing.lowest_on, -firing.highest_off),
        forward_difference=difference,
        claims=claims,
        tensors=tensor_hashes(construction),
    )


def tensor_hashes(construction: Construction) -> dict[str, str]:
    """Return the SHA-256 of the bytes of every tensor of the model, by name."""
    return {
        name: hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in construction.model.state_dict().items()
    }


def _entries(construction: Construction) -> int:
    return 1 + max(len(task.pairs) * len(key_sides(task)) for task in construction.knowledge.tasks)


def _neuron_counts(construction: Construction) -> tuple[tuple[Count, ...], Count]:
    knowledge, length, entries = construction.knowledge, construction.knowledge.max_length, _entries(construction)
    counts = []
    for number, task in enumerate(knowledge.tasks):
        expert = construction.model.model.expert(number).up.out_features if construction.router else 0
        own = expert or construction.circuit(number)
        counts.append(Count(own, length * len(task.templates) + entries, task.name))
    templates = width_bound(knowledge) // (2 * length)
    largest = length * templates + entries * len(knowledge.tasks)
    total = sum(len(each) for each in construction.layout)
    return tuple(counts), Count(total, largest if construction.router is None else sum(each.bound for each in counts))


def _circuits(
    construction: Construction, reader: Reader, states: np.ndarray, firing: Firing, prefixes: Sequence[Prefix]
) -> tuple[float, int]:
    """The least mass of each task's circuit alone on its own prefixes, and how often an off-task neuron fired."""
    neurons = construction.layout[0]
    inside = _members([prefix.tasks for prefix in prefixes], len(construction.knowledge.tasks))
    circuits = _members([neuron.tasks for neuron in neurons], len(construction.knowledge.tasks))
    strangers = ~(inside[firing.prefix] & circuits[firing.neuron]).any(1)
    least = 1.0
    for task in range(inside.shape[1]):
        own = np.flatnonzero(inside[:, task])
        kept = inside[firing.prefix, task] & circuits[firing.neuron, task]
        place = np.searchsorted(own, firing.prefix[kept])
        alone = replace(firing, prefix=place, neuron=firing.neuron[kept], value=firing.value[kept])
        outputs = reader.outputs(states[own], np.zeros(len(own), dtype=np.int64), alone)
        least = min(least, float(reader.masses(outputs, [prefixes[at].valid for at in own.tolist()]).min()))
    return least, int(strangers.sum())


def _members(tasks: Sequence[tuple[int, ...]], count: int) -> np.ndarray:
    """``[len(tasks), count]`` bool: which tasks each entry belongs to."""
    found = np.zeros((len(tasks), count), dtype=bool)
    for at, each in enumerate(tasks):
        found[at, list(each)] = True
    return found


def _detours(construction: Construction, prefixes: Sequence[Prefix], experts: np.ndarray) -> list[str]:
    if construction.router is None:
        return []
    names = [task.name for task in construction.knowledge.tasks]
    return [
        f"{construction.tokenizer.decode(prefix.tokens)!r} of {names[prefix.tasks[0]]} goes to {names[expert]}"
        for prefix, expert in zip(prefixes, experts.tolist(), strict=True)
        if expert != prefix.tasks[0]
    ]


def _forward_difference(
    construction: Construction, prefixes: Sequence[Prefix], experts: np.ndarray, masses: np.ndarray
) -> float:
    """Run the whole model on a sample of the longest prefixes and compare probabilities and experts at every token."""
    place = {prefix.tokens: at for at, prefix in enumerate(prefixes)}
    whole = [prefix.tokens for prefix in prefixes if construction.tokenizer.eos_id in prefix.valid]
    worst = 0.0
    for tokens in whole[:: max(1, len(whole) // _SAMPLE)]:
        ids = torch.tensor([(construction.tokenizer.bos_id, *tokens)])
        out = construction.model(input_ids=ids, output_router_logits=True)
        probabilities = out.logits[0].softmax(-1)
        for end in range(len(tokens) + 1):
            at = place[tokens[:end]]
            mass = float(probabilities[end, sorted(prefixes[at].valid)].sum())
            same = out.router_logits is None or int(out.router_logits[0][end].argmax()) == experts[at]
            worst = max(worst, abs(mass - float(masses[at])) if same else 1.0)
    return worst
