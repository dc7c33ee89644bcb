"""What every study leaves behind: ``results.json``, ``manifest.json``, ``report.html`` and its figures.

DIRECTORY/results.json    {"kind": "study", "study", "title", "host", "found": what the study returns, "commands"}
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from routelab.errors import RecipeError
from routelab.manifest import commit, hardware, versions
from routelab.recipe import HostSpec
from routelab.report.html import write_report
from routelab.report.page import Page
from routelab.report.studies import study_page
from routelab.rundir import read_json, write_json
from routelab.study.margins import measure_margins
from routelab.study.texts import StudyText

if TYPE_CHECKING:
    from routelab.evaluate.prompts import Prompt
    from routelab.hosts.recurrent.model import RecurrentForCausalLM
    from routelab.methods.wise.config import WISEConfig

SCHEMA = 1


@dataclass
class Notes:
    """What a study was made of, gathered while it runs."""

    command: str
    host: HostSpec | None = None
    seeds: Sequence[int] = ()
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    began: float = field(default_factory=time.perf_counter)

    def texts(self, texts: Iterable[StudyText]) -> Iterator[StudyText]:
        """Pass texts on, one at a time, and note how many there were of each task and the hash of their ids."""
        digests: dict[str, Any] = {}
        counts: dict[str, int] = {}
        for text in texts:
            digest = digests.setdefault(text.task, hashlib.sha256())
            digest.update(json.dumps([text.id, list(text.ids)]).encode() + b"\n")
            counts[text.task] = counts.get(text.task, 0) + 1
            yield text
        for task, digest in digests.items():
            self.data[task] = {"rows": counts[task], "sha256": digest.hexdigest()}


def claim_folder(folder: Path, study: str) -> Path:
    """Return a folder that a study may write into: a new one, or one of the same study, which is written over.

    Raises:
        RecipeError: the folder holds something else.
    """
    results = folder / "results.json"
    if results.is_file():
        held = read_json(results)
        if not isinstance(held, dict) or held.get("study") != study:
            raise RecipeError(f"{folder} holds the results of something else; choose another with --out")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RecipeError(f"{folder} exists and holds no study; choose another with --out")
    return folder


def write_study(folder: Path, study: str, title: str, found: Mapping[str, Any], notes: Notes) -> Page:
    """Write a finished study into ``folder`` and return its page."""
    from routelab.hosts.files import host_files

    seconds = round(time.perf_counter() - notes.began, 3)
    manifest = {
        "name": f"study-{study}",
        "seeds": list(notes.seeds),
        "data": notes.data,
        "host": host_files(notes.host.name) if notes.host is not None else {},
        "versions": versions(),
        "commit": commit(),
        "hardware": hardware(),
        "sessions": [{"command": notes.command, "started": notes.started, "ended": None, "seconds": seconds}],
    }
    results = {
        "schema": SCHEMA,
        "kind": "study",
        "study": study,
        "name": f"study-{study}",
        "title": title,
        "note": "",
        "seeds": list(notes.seeds),
        "host": None if notes.host is None else notes.host.name,
        "found": finite(found),
        "commands": [["The whole study", notes.command]],
    }
    write_json(folder / "manifest.json", manifest)
    write_json(folder / "results.json", results)
    page = study_page(results, manifest)
    write_report(folder / "report.html", folder / "figures", page)
    return page


def finite(value: Any) -> Any:
    """Return plain values with None in the place of numbers that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def margins_of_prompts(
    model: RecurrentForCausalLM,
    tokenizer: Any,
    prompts: Iterable[Prompt],
    config: WISEConfig,
    *,
    num_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Return the margins of some prompts, one after the other: ``each``, one summary a prompt, and their ``mean``."""
    from routelab.evaluate.prompts import encode

    each = []
    for prompt in prompts:
        ids = torch.tensor([encode(tokenizer, prompt)], device=model.device)
        each.append(finite(measure_margins(model, ids, config, num_steps=num_steps, seed=seed).summary()))
    known = {key: [one[key] for one in each if one[key] is not None] for key in each[0]}
    mean = {key: fmean(values) if values else None for key, values in known.items()}
    return {"prompts": len(each), "num_steps": num_steps, "each": each, "mean": mean}
