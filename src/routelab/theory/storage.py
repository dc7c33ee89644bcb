"""A construction as a directory: an ordinary model checkpoint, its facts, its layout, its certificate."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from routelab.data.knowledge import KnowledgeTokenizer, read_knowledge, write_knowledge
from routelab.errors import CheckpointError, DataError
from routelab.hosts.one_layer import OneLayerConfig, OneLayerForCausalLM
from routelab.theory.certificate import FORMAT, Certificate, certify, tensor_hashes
from routelab.theory.construct import Construction
from routelab.theory.neurons import Neuron
from routelab.theory.summary import summary

TENSORS, KNOWLEDGE, LAYOUT = "model.safetensors", "knowledge.jsonl", "layout.json"
CERTIFICATE, SUMMARY = "certificate.json", "summary.md"


def save(construction: Construction, certificate: Certificate, folder: str | os.PathLike[str]) -> Path:
    """Write ``config.json``, ``model.safetensors`` (float64), tokenizer, knowledge, layout, certificate and a summary.

    Every file is written elsewhere first and renamed, the certificate last.

    Raises:
        CheckpointError: ``folder`` is a file.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise CheckpointError(f"{target} is a file; a construction is a directory")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".construction-", dir=target) as name:
        made = Path(name)
        construction.model.config.save_pretrained(made)
        save_file(construction.model.state_dict(), made / TENSORS, metadata={"format": "pt"})
        construction.tokenizer.save(made)
        write_knowledge(construction.knowledge, made / KNOWLEDGE)
        neurons = [[neuron.plain() for neuron in expert] for expert in construction.layout]
        layout = {"format": FORMAT, "router": construction.router, "eps": construction.eps, "experts": neurons}
        (made / LAYOUT).write_text(json.dumps(layout) + "\n", encoding="utf-8")
        (made / SUMMARY).write_text(summary(construction, certificate), encoding="utf-8")
        (made / CERTIFICATE).write_text(_json(certificate.plain()), encoding="utf-8")
        for file in sorted(made.iterdir(), key=lambda file: file.name == CERTIFICATE):
            os.replace(file, target / file.name)
    return target


def load(folder: str | os.PathLike[str]) -> Construction:
    """Read what :func:`save` wrote, without checking it; :func:`verify` does.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    source = Path(folder)
    layout = _read(source / LAYOUT)
    try:
        neurons = tuple(tuple(Neuron.of(values) for values in expert) for expert in layout["experts"])
        router, eps = layout["router"], float(layout["eps"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{source / LAYOUT} is damaged: {error!r}") from error
    try:
        knowledge = read_knowledge(source / KNOWLEDGE)
        model = OneLayerForCausalLM(OneLayerConfig.from_pretrained(source)).to(torch.float64).eval()
        model.load_state_dict(load_file(source / TENSORS))
    except (DataError, OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"{source} holds no construction that can be read: {error}") from error
    sizes = [max(1, len(expert)) for expert in neurons]
    if sizes != list(model.config.expert_sizes):
        there = list(model.config.expert_sizes)
        raise CheckpointError(f"{source / LAYOUT} describes experts of {sizes} neurons, not {there}")
    return Construction(model.requires_grad_(False), KnowledgeTokenizer.load(source), knowledge, eps, router, neurons)


def verify(folder: str | os.PathLike[str]) -> Certificate:
    """Recompute the certificate from the saved weights and facts alone, and compare it with the saved one.

    Raises:
        CheckpointError: a file is missing or damaged, a tensor is not the one that was certified, a claim does not hold
            any more, or a recorded number is not what comes out; the text names each.
    """
    source = Path(folder)
    recorded = _read(source / CERTIFICATE)
    construction = load(source)
    found = certify(construction)
    wrong = [f"{name!r} does not hold" for name, holds in found.claims.items() if not holds]
    hashes = recorded.get("tensors", {})
    changed = [name for name, digest in tensor_hashes(construction).items() if hashes.get(name) != digest]
    wrong += [f"the tensor {name} is not the one that was certified" for name in changed]
    expected = json.loads(_json(replace(found, tensors={}).plain()))
    skipped = {"tensors", "claims", "passed"}
    for name, value in expected.items():
        if name not in skipped and not _same(value, recorded.get(name)):
            wrong.append(f"{name} is {value}, recorded is {recorded.get(name)}")
    if wrong:
        raise CheckpointError(f"{source} does not pass: {'; '.join(wrong)}")
    return found


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, int | float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _read(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing; did routelab construct write {file.parent}?") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("format"), int):
        raise CheckpointError(f"{file} is damaged: it has no format")
    if values["format"] > FORMAT:
        raise CheckpointError(f"{file} has format {values['format']}; this version reads up to {FORMAT}")
    return values
