"""Where everything lies in the residual stream, and the embedding and attention weights that put it there.

Inputs of the heads are written :data:`SMALL` and read magnified by its inverse, both powers of two. So the outputs of
the heads may lie on the same coordinates: in a float64 sum the inputs vanish beside them. The two output coordinates
are never written by a head; the position, which the neurons may read, lies there. See ``docs/taskrouting-theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM
from routelab.theory.codes import Codes
from routelab.theory.prefixes import NAME

SMALL = 2.0**-200
#: Score between what a hard head takes and what it leaves: exp(-1000) is exactly 0 in float64.
GAP = 1000.0


@dataclass(frozen=True)
class Row:
    """An affine function of ``A'``: coefficients by coordinate, and a constant."""

    coefficients: Mapping[int, float]
    constant: float = 0.0

    def __add__(self, other: Row) -> Row:
        total = dict(self.coefficients)
        for coordinate, value in other.coefficients.items():
            total[coordinate] = total.get(coordinate, 0.0) + value
        return Row(total, self.constant + other.constant)

    def scaled(self, factor: float) -> Row:
        return Row({at: factor * value for at, value in self.coefficients.items()}, factor * self.constant)


@dataclass(frozen=True)
class Stream:
    """Coordinates by name. ``inputs`` are read by the heads, ``outputs`` are written by them.

    ``sees_value`` adds a third head, which sees the latest name. ``reads_features`` and ``reads_words`` say whether the
    bits of names and the words of a prefix each have a coordinate.
    """

    codes: Codes
    width: int
    sees_value: bool
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    reads_features: bool
    reads_words: bool

    @classmethod
    def of(cls, codes: Codes, bound: int, sees_value: bool) -> Stream:
        """Lay the coordinates out below ``bound``: what is needed always fits, the rest where there is room."""
        length = codes.knowledge.max_length
        heads = ["key", "last"] if sees_value else ["key"]
        inputs = ["name", "name^2"]
        outputs = [f"{head}{power}" for head in heads for power in ("", "^2")]
        if not codes.by_length:
            inputs += ["one", "begin", "is_name", "weight", "log_weight", *(f"at_{j}" for j in range(1, length + 1))]
            outputs += ["z", "q", *(f"s_{j}" for j in range(1, length + 1))]
        features = [str(number) for number in range(len(codes.features))]
        words = [] if codes.by_length else [str(word) for word in codes.word]
        with_features = ([f"bit_{f}" for f in features], [f"{head}_bit_{f}" for head in heads for f in features])
        with_words = ([f"has_{word}" for word in words], [f"count_{word}" for word in words])
        taken = []
        for more_inputs, more_outputs in (with_features, with_words):
            fits = 2 + max(len(inputs) + len(more_inputs), len(outputs) + len(more_outputs)) <= bound
            taken.append(fits)
            if fits:
                inputs, outputs = inputs + more_inputs, outputs + more_outputs
        return cls(
            codes,
            2 + max(len(inputs), len(outputs)),
            sees_value,
            {"rank": 0, "rank^2": 1, **{name: 2 + at for at, name in enumerate(inputs)}},
            {name: 2 + at for at, name in enumerate(outputs)},
            taken[0],
            taken[1] and bool(words),
        )

    @cached_property
    def heads(self) -> list[dict[str, str]]:
        """Per head, the output that each of its inputs is carried to."""
        values: list[dict[str, str]] = [{}]
        if not self.codes.by_length:
            values[0] = {"begin": "z", "weight": "q"}
            values[0] |= {f"at_{j}": f"s_{j}" for j in range(1, self.codes.knowledge.max_length + 1)}
        if self.reads_words:
            values[0] |= {f"has_{word}": f"count_{word}" for word in self.codes.word}
        for head in ("key", "last") if self.sees_value else ("key",):
            carried = {"name": head, "name^2": f"{head}^2"}
            if self.reads_features:
                carried |= {f"bit_{f}": f"{head}_bit_{f}" for f in range(len(self.codes.features))}
            values.append(carried)
        return values

    def config(self, expert_sizes: list[int]) -> OneLayerConfig:
        """Return the configuration of the model, its heads as narrow as what they carry."""
        return OneLayerConfig(
            vocab_size=self.codes.tokenizer.vocab_size,
            hidden_size=self.width,
            num_heads=len(self.heads),
            head_size=max(1, *(len(values) for values in self.heads)),
            expert_sizes=expert_sizes,
            max_length=self.codes.knowledge.max_length + 1,
            positions=True,
            gate="hard",
            architectures=["OneLayerForCausalLM"],
            bos_token_id=self.codes.tokenizer.bos_id,
            eos_token_id=self.codes.tokenizer.eos_id,
            pad_token_id=self.codes.tokenizer.eos_id,
            dtype=torch.float64,
        )

    def write(self, model: OneLayerForCausalLM) -> None:
        """Write the embedding and attention weights of a model whose parameters are zero."""
        inner, size = model.model, model.config.head_size
        embeddings, positions = inner.embed_tokens.weight.numpy(), inner.positions().numpy()
        query, key, value, output = (
            getattr(inner.attention, f"{name}_proj").weight.numpy() for name in ("q", "k", "v", "o")
        )
        for token, values in self._tokens():
            embeddings[token, [self.inputs[name] for name in values]] = [each * SMALL for each in values.values()]
        for rank in range(1, len(positions) + 1):
            values = {"rank": float(rank), "rank^2": float(rank * rank)}
            if not self.codes.by_length:
                values |= {"one": 1.0} if rank == 1 else {"one": 1.0, f"at_{rank - 1}": 1.0}
            positions[rank - 1, [self.inputs[name] for name in values]] = [each * SMALL for each in values.values()]
        for head, carried in enumerate(self.heads):
            query[head * size, self.inputs["rank" if self.codes.by_length else "one"]] = 1 / SMALL
            for name, score in self._score(head).items():
                key[head * size, self.inputs[name]] = score * math.sqrt(size) / SMALL
            for at, (source, target) in enumerate(carried.items(), start=head * size):
                value[at, self.inputs[source]] = 1 / SMALL
                output[self.outputs[target], at] = 1.0

    def _score(self, head: int) -> dict[str, float]:
        """The attention score of a head as a function of its inputs: the logarithm of the word's weight in the first
        head, the first name in the second, the latest name in the third; the begin token where there is no name."""
        if self.codes.by_length:
            if head == 0:
                return {}
            longest: tuple[int, ...] = max(self.codes.shapes, key=lambda shape: len(shape))
            places = [rank for rank, symbol in enumerate(longest, start=2) if symbol == NAME]
            return {"rank": 2 * GAP * places[head - 1], "rank^2": -GAP}
        if head == 0:
            return {"log_weight": 1.0}
        step = GAP * (self.codes.knowledge.max_length + 2)
        return {"is_name": 2 * step, "begin": step, "rank": -GAP if head == 1 else GAP}

    def _tokens(self) -> Iterator[tuple[int, dict[str, float]]]:
        codes = self.codes
        if not codes.by_length:
            yield codes.tokenizer.bos_id, {"begin": 1.0}
        for symbol, weight in codes.word.items():
            if symbol != NAME and not codes.by_length:
                yield symbol, self._word(symbol, weight)
        for name, number in codes.name.items():
            values = {"name": float(number), "name^2": float(number * number)}
            if self.reads_features:
                bits = codes.name_bits[name]
                values |= {f"bit_{f}": 1.0 for f in range(len(codes.features)) if bits >> f & 1}
            if not codes.by_length:
                values |= {"is_name": 1.0, **self._word(NAME, codes.word[NAME])}
            yield name, values

    def _word(self, symbol: int, weight: int) -> dict[str, float]:
        values = {"weight": float(weight), "log_weight": math.log(weight)}
        return values | {f"has_{symbol}": 1.0 / weight} if self.reads_words else values

    # Penalties: affine functions that are 0 where a condition holds and at least 1 where it does not.

    def not_shape(self, shape: tuple[int, ...]) -> Row:
        """``Z_max Σ_j (F(w_j) - F(u_j))² / Z``, F = 0 beyond the end; or ``(i - |u|)²`` where the length tells."""
        if self.codes.by_length:
            rank = len(shape) + 1
            row = {self.inputs["rank"]: -2.0 * rank / SMALL, self.inputs["rank^2"]: 1.0 / SMALL}
            return Row(row, float(rank * rank))
        scale, weights = float(self.codes.largest_sum), [self.codes.word[symbol] for symbol in shape]
        row = {self.outputs["q"]: scale, self.outputs["z"]: scale * sum(weight * weight for weight in weights)}
        return Row(row | {self.outputs[f"s_{j}"]: -2 * scale * weight for j, weight in enumerate(weights, start=1)})

    def not_name(self, head: str, name: int) -> Row:
        """``(t - t_name)²`` of the name that a head sees."""
        number = float(self.codes.name[name])
        return Row({self.outputs[f"{head}^2"]: 1.0, self.outputs[head]: -2 * number}, number * number)

    def not_bit(self, head: str, feature: int, wanted: bool) -> Row:
        """0 where the feature of the name that a head sees is as wanted, else 1."""
        at = self.outputs[f"{head}_bit_{feature}"]
        return Row({at: -1.0}, 1.0) if wanted else Row({at: 1.0})
