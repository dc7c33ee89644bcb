"""The page of any study, from its ``results.json`` alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from routelab.errors import RecipeError, closest
from routelab.report.page import Page, facts, started
from routelab.report.studies_answers import lengths_shown, sweep_shown
from routelab.report.studies_attention import acf_shown, sinks_shown
from routelab.report.studies_inside import convergence_shown, interference_shown, margins_shown, working_set_shown
from routelab.report.studies_parts import Found, Shown
from routelab.report.studies_routing import gates_shown, routing_shown
from routelab.report.studies_seeds import seeds_shown

STUDIES: Mapping[str, Callable[[Found], Shown]] = MappingProxyType(
    {
        "acf": acf_shown,
        "convergence": convergence_shown,
        "depth": sweep_shown,
        "gates": gates_shown,
        "interference": interference_shown,
        "lengths": lengths_shown,
        "margins": margins_shown,
        "routing": routing_shown,
        "seeds": seeds_shown,
        "sinks": sinks_shown,
        "window": sweep_shown,
        "working-set": working_set_shown,
    }
)

#: The keys of a study's ``results.json``.
KEYS = frozenset({"study", "title", "host", "found", "commands"})


def study_page(results: Mapping[str, Any], manifest: Mapping[str, Any]) -> Page:
    """Return the page of a study.

    Raises:
        RecipeError: the results are of no study that is known here, or lack a part.
    """
    missing = sorted(KEYS - set(results))
    if missing:
        raise RecipeError(f"the results of a study lack {', '.join(missing)}; run the study again")
    name = results["study"]
    if name not in STUDIES:
        raise RecipeError(f"no study is called {name!r}{closest(str(name), STUDIES)}")
    shown = STUDIES[name](results["found"])
    return Page(
        title=results["title"],
        eyebrow=[*([f"host {results['host']}"] if results["host"] else []), *started(manifest)],
        claim=shown.claim,
        note=shown.note,
        draw=lambda: shown.panels,
        tables=shown.tables,
        commands=results["commands"],
        facts=facts(manifest),
    )
