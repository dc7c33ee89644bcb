"""One cell of Table 1: draw the knowledge, train, complete the test sentences, look at the router; one JSON file."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from routelab.data.knowledge import Knowledge, KnowledgeTokenizer, Sentence, fictional, read_relations, select, split
from routelab.errors import DataError, RecipeError
from routelab.evaluate.completion import complete, cut, exact_match
from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM
from routelab.rundir import read_json, write_json
from routelab.study.alignment import active_experts, alignment
from routelab.study.one_layer import visits
from routelab.table1.spec import CellSpec
from routelab.train.one_layer import OneLayerTraining, train_one_layer

FORMAT = 1


def run_cell(
    spec: CellSpec,
    data_root: Path | None,
    out_dir: Path,
    resume: bool = False,
    *,
    on_epoch: Callable[[dict[str, float]], None] = lambda _: None,
) -> dict[str, Any]:
    """Run one cell, or read it where it is finished; return its result, which is also ``out_dir/<name>.json``.

    Args:
        data_root: the directory of ``bear/`` and ``pararel/``, or None.

    Raises:
        RecipeError: the file is there without ``resume``, damaged, or of a cell with another setting.
        DataError: the source has too few relations of the size, or ``source="relations"`` and no ``data_root``.
        TrainingError: the loss is no longer finite.
    """
    path = out_dir / f"{spec.name}.json"
    if path.exists():
        if not resume:
            raise RecipeError(f"{path} is a finished cell; continue with resume, or choose another directory")
        return finished(path, spec)
    knowledge, source = knowledge_of(spec, data_root)
    train, test = split(knowledge, spec.seed)
    tokenizer = KnowledgeTokenizer(knowledge)
    rows, held_out = encoded(tokenizer, train), encoded(tokenizer, test)
    sentences = set(rows) | set(held_out)
    longest = max(map(len, sentences))
    model = make_model(spec, tokenizer.vocab_size, longest)
    history = train_one_layer(model, rows, [s.task for s in train], training_of(spec), on_epoch)
    started = time.perf_counter()
    prompts = cut(held_out, spec.seed)
    completions = complete(model, prompts, end=tokenizer.eos_id, max_length=longest)
    counts, steady = visits(model, held_out, [s.task for s in test])
    measures = alignment(counts)
    result = {
        "format": FORMAT,
        "name": spec.name,
        "tasks": spec.tasks,
        "experts": spec.experts,
        "loss": spec.loss,
        "seed": spec.seed,
        "accuracy": exact_match(completions, sentences),
        "accuracy_of_task": _by_task(completions, [s.task for s in test], sentences, spec.tasks),
        "alignment": counts.tolist(),
        "nmi": measures["nmi"],
        "purity": measures["purity"],
        "entropy": measures["entropy"],
        "load": measures["load"],
        "dead_experts": measures["dead"],
        "steady_sentences": steady,
        "router_gradient": history[-1]["router_gradient"],
        "note": _note(spec, history),
        "seconds": sum(row["seconds"] for row in history),
        "evaluation_seconds": time.perf_counter() - started,
        "tokens": sum(row["tokens"] for row in history),
        "history": history,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "expert_parameters": sum(parameter.numel() for parameter in model.model.experts[0].parameters()),
        "active_experts": active_experts(counts).tolist(),
        "vocabulary": tokenizer.vocab_size,
        "sentences": {"train": len(train), "test": len(test)},
        "relations": [task.name for task in knowledge.tasks],
        "source": source,
        "data_sha256": _digest(rows, held_out, prompts, tokenizer.symbols),
        "spec": spec.values(),
        "spec_sha256": spec.digest(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    # Written under the process's own name: two grids in one directory must not write into each other's file.
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    write_json(temporary, result)
    os.replace(temporary, path)
    return result


def finished(path: Path, spec: CellSpec) -> dict[str, Any]:
    """Read a finished cell; raises ``RecipeError`` if it is damaged or was run with other settings."""
    result = read_json(path)
    if not isinstance(result, dict) or not {"spec", "spec_sha256", "accuracy", "alignment"} <= result.keys():
        raise RecipeError(f"{path} is damaged; delete it and run the cell again")
    if result["spec_sha256"] != spec.digest():
        there, wanted = result["spec"], spec.values()
        changed = next((key for key in wanted if there.get(key) != wanted[key]), "spec_sha256")
        raise RecipeError(
            f"{path} was run with {changed} {there.get(changed)!r}, this cell has {wanted.get(changed)!r}; "
            "choose another directory, or delete the file"
        )
    return dict(result)


def knowledge_of(spec: CellSpec, data_root: Path | None) -> tuple[Knowledge, str]:
    """Return the cell's relations and where they are from, ``"bear+pararel"`` or ``"fictional"``."""
    if spec.source == "relations" and data_root is None:
        raise DataError("source 'relations' needs ROUTELAB_DATA, the directory of bear/ and pararel/")
    if spec.source == "fictional" or data_root is None:
        made = fictional(spec.tasks, templates=spec.templates, pairs=spec.pairs, seed=spec.seed)
        return made, "fictional"
    every = read_relations("both", data_root)
    return select(every, spec.tasks, spec.templates, spec.pairs, spec.seed), "bear+pararel"


def make_model(spec: CellSpec, vocabulary: int, longest: int) -> OneLayerForCausalLM:
    """Return the cell's untrained host. Its weights depend on its shape and the seed, not on the loss."""
    torch.manual_seed(spec.seed)
    config = OneLayerConfig(
        vocab_size=vocabulary,
        hidden_size=spec.hidden_size,
        num_heads=spec.num_heads,
        expert_sizes=[spec.neurons] * spec.experts,
        max_length=longest,
        gate=spec.gate,
        routing=spec.routing,
        initializer_range=0.05,
    )
    return OneLayerForCausalLM(config)


def training_of(spec: CellSpec) -> OneLayerTraining:
    """Return the training settings of a cell."""
    return OneLayerTraining(
        loss=spec.loss,
        coefficient=float(spec.coefficient or 0.0),
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
        embedding_scale=spec.embedding_scale,
        warmup=spec.warmup,
        seed=spec.seed,
    )


def encoded(tokenizer: KnowledgeTokenizer, sentences: Sequence[Sentence]) -> list[tuple[int, ...]]:
    """Return the token ids of sentences, from begin to end."""
    return [tuple(tokenizer.encode_sentence(sentence.words)) for sentence in sentences]


def _by_task(
    completions: Sequence[tuple[int, ...]], tasks: Sequence[int], sentences: set[tuple[int, ...]], count: int
) -> list[float | None]:
    """Accuracy on the test sentences of each task; None for a task without any."""
    hits: list[list[bool]] = [[] for _ in range(count)]
    for completion, task in zip(completions, tasks, strict=True):
        hits[task].append(completion in sentences)
    return [sum(each) / len(each) if each else None for each in hits]


def _note(spec: CellSpec, history: Sequence[dict[str, float]]) -> str | None:
    """Say so where the router could not learn from the language model."""
    if spec.experts > 1 and not any(row["router_gradient"] for row in history):
        return f"the router got no gradient from cross-entropy (gate {spec.gate!r}): only an auxiliary loss trains it"
    return None


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()
