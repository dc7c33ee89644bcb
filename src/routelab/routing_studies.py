"""The studies that look inside a routing on a host, made into a study directory, for ``routelab study`` and runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routelab.recipe import ACFStudy, GatesStudy, HostSpec, RoutingStudy, SinksStudy, StudySpec
from routelab.recipe.inside import compares
from routelab.report.page import Page
from routelab.studies import Notes, write_study
from routelab.study.acf import window_acf
from routelab.study.gates import study_gates
from routelab.study.routing_maps import study_routing
from routelab.study.sinks import compare_sinks, patch_sinks, sinks
from routelab.study.texts import StudyText, study_texts

Found = dict[str, Any]
#: Makes a reporter of texts read out of those to read, or None where nobody looks.
Progress = Callable[[str], Callable[[int, int], None] | None]

TITLES = {
    "acf": "Autocorrelation of the attention window",
    "gates": "Gates of attention-aware routing",
    "routing": "What the routers do",
    "sinks": "Attention sinks",
}


@dataclass(frozen=True)
class Routed:
    """What is looked at: ``routing`` on ``host``, and the control's routing ``against`` it where a study compares.

    Both are folders written by ``routelab.save``; None is the host untouched. ``load`` returns model and tokenizer.
    """

    host: HostSpec
    routing: Path | None
    against: Path | None
    load: Callable[[Path | None], tuple[Any, Any]]


def run_study(spec: StudySpec, of: Routed, folder: Path, notes: Notes, progress: Progress = lambda task: None) -> Page:
    """Make one study, write it into ``folder`` and return its page.

    Raises:
        EvaluationError: no such task or option, or the models cannot be studied so.
        DataError: the rows of a task cannot be read.
    """

    def read(tokenizer: Any) -> Iterator[StudyText]:
        return _texts(spec, notes, tokenizer, progress)

    return write_study(folder, spec.study, TITLES[spec.study], _found(spec, of, read), notes)


def study_command(spec: StudySpec, of: Routed, folder: Path) -> str:
    """Return the command line that makes the same study again."""
    words = ["routelab", "study", spec.study, "--host", of.host.name]
    words += ["--dtype", of.host.dtype] if of.host.dtype else []
    words += ["--trust-remote-code"] if of.host.trust_remote_code else []
    words += [] if of.routing is None else ["--routing", str(of.routing)]
    match spec:
        case ACFStudy():
            words += _each("--window", spec.window) + _each("--layer", spec.layers or ())
        case SinksStudy():
            words += ["--patch"] if spec.patch else []
            words += _each("--layer", spec.layers or ())
        case RoutingStudy():
            words += ["--compare"] if spec.compare else []
    words += ["--against", str(of.against)] if compares(spec) and of.against is not None else []
    words += _each("--task", spec.tasks) + _each("--option", [f"{key}={value}" for key, value in spec.options.items()])
    words += ["--limit", str(spec.limit)] + ([] if spec.longest is None else ["--longest", str(spec.longest)])
    return shlex.join([*words, "--out", str(folder)])


def _each(option: str, values: Any) -> list[str]:
    return [word for value in values for word in (option, str(value))]


def _found(spec: StudySpec, of: Routed, read: Callable[[Any], Iterator[StudyText]]) -> Found:
    model, tokenizer = of.load(of.routing)
    match spec:
        case ACFStudy():
            return window_acf(model, read(tokenizer), windows=spec.window, layers=spec.layers)
        case GatesStudy():
            return study_gates(model, read(tokenizer))
        case RoutingStudy():
            control = of.load(of.against)[0] if spec.compare else None
            found = study_routing(model, tokenizer, read(tokenizer), spec.tasks, control=control)
            return found | {"names": _names(of)}
        case SinksStudy():
            ours = sinks(model, read(tokenizer))
            # One model at a time, unless the patch needs both.
            donor = model if spec.patch else None
            del model
            control = of.load(of.against)[0]
            found = compare_sinks(ours, sinks(control, read(tokenizer)))
            patch = None if donor is None else patch_sinks(control, donor, read(tokenizer), layers=spec.layers)
            return found | {"names": _names(of), "patch": patch}


def _texts(spec: StudySpec, notes: Notes, tokenizer: Any, progress: Progress) -> Iterator[StudyText]:
    """Texts of every task, one after the other; options go to the first."""
    for number, task in enumerate(spec.tasks):
        options = spec.options if number == 0 else {}
        shown = progress(task)
        texts = notes.texts(study_texts(tokenizer, task, limit=spec.limit, options=options, longest=spec.longest))
        for done, text in enumerate(texts, start=1):
            yield text
            if shown is not None:
                shown(done, spec.limit)


def _names(of: Routed) -> dict[str, str]:
    """What to call the two models: the folders of their routings, which are <arm>/seed-<n> in a run directory."""
    return {"model": _named(of.routing), "control": _named(of.against)}


def _named(routing: Path | None) -> str:
    if routing is None:
        return "the host"
    parts = routing.resolve().parts
    return f"{parts[-2]}, {parts[-1]}" if parts[-1].startswith("seed-") else parts[-1]
