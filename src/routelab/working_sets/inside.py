"""What a host does inside while it reads the questions of a run: densities, retained mass, stability, convergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from routelab.evaluate.prompts import encode
from routelab.methods.wise.conditions import reuses
from routelab.methods.wise.config import WISEConfig
from routelab.study.convergence import sensitivity
from routelab.study.convergence_observer import measure_convergence
from routelab.study.working_set import (
    add_audits,
    audit_size_matched,
    coverage,
    maps,
    stability,
    summarise_coverage,
    summarise_stability,
)
from routelab.study.working_set_heads import heads, summarise_heads
from routelab.study.working_set_masses import collect_masses
from routelab.study.working_set_saved import save_supports
from routelab.working_sets.questions import Question

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def look_inside(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    variants: Mapping[str, WISEConfig],
    base: WISEConfig,
    *,
    num_steps: int,
    seed: int,
    supports: Path | None = None,
) -> dict[str, Any]:
    """Return the coverage of every variant that reuses a support, and the stability, heads and maps of ``base``.

    The maps are those of the first question.

    One prompt at a time; one full forward a block size serves all. The working sets of ``base`` are written to the
    file ``supports``, if one is named, by the questions' ids (:mod:`routelab.study.working_set_saved`).
    """
    reusing = {name: config for name, config in variants.items() if reuses(config.condition)}
    covered: dict[str, list[Any]] = {name: [] for name in reusing}
    stable, looked, audits, saved = [], [], [], {}
    shown: dict[str, Any] | None = None
    sizes = sorted({base.block_size, *(config.block_size for config in reusing.values())})
    for question in questions:
        ids = torch.tensor([encode(tokenizer, question.prompt)], device=model.device)
        for size in sizes:
            masses = collect_masses(model, ids, num_steps=num_steps, seed=seed, block_size=size)
            for name, config in reusing.items():
                if config.block_size == size:
                    covered[name] += coverage(masses, config)
            if size == base.block_size:
                stable += stability(masses, base)
                looked += heads(masses, base)
                audits.append(audit_size_matched(masses, base))
                if question is questions[0]:
                    shares = maps(masses, base)
                    about = {"question": question.id, "tokens": ids.shape[1], "block_size": size}
                    shown = None if shares is None else {**about, "shares": shares}
                if supports is not None:
                    saved[question.id] = masses.late_support(base)
    if supports is not None:
        save_supports(supports, saved)
    return {
        "coverage": summarise_coverage(covered),
        "stability": summarise_stability(stable),
        "heads": summarise_heads(looked),
        "audit": asdict(add_audits(audits)),
        "maps": shown,
    }


def converge(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    *,
    num_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Return the four convergence times of the questions under every setting of the criteria."""
    found = []
    for question in questions:
        ids = torch.tensor([encode(tokenizer, question.prompt)], device=model.device)
        found += measure_convergence(model, ids, num_steps=num_steps, seed=seed)
    return sensitivity(found)
