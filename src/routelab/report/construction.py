"""The page of a construction: what its certificate says, and every size beside the theorem's bound of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from routelab.report.numbers import csv_text
from routelab.report.page import Page
from routelab.report.panel import Panel, canvas, legend, row_labels
from routelab.report.tables import Table
from routelab.report.theme import ARMS, CONTROL, INK

Certificate = Mapping[str, Any]
#: Experts that are drawn; the table has all.
_DRAWN = 24


def construction_page(certificate: Certificate, folder: Path) -> Page:
    """Return the page of the ``certificate.json`` of ``folder``."""
    tasks = f"{certificate['tasks']} task{'s' if certificate['tasks'] != 1 else ''}"
    return Page(
        title="Exact weights from facts",
        eyebrow=[f"theorem {certificate['theorem']}", tasks, f"vocabulary {certificate['vocabulary']:,}"],
        claim=claim(certificate),
        note=(
            f"Recomputed from the weights in float64 over every prefix of every sentence. ε is {certificate['eps']:g}; "
            "the least probability of valid next words is a lower bound."
        ),
        draw=lambda: [neurons_panel(certificate)],
        tables=[claims_table(certificate), sizes_table(certificate)],
        commands=[
            ["The certificate, checked again", shlex.join(["routelab", "construct", "--verify", str(folder)])],
            ["This page from certificate.json", shlex.join(["routelab", "report", str(folder)])],
        ],
        facts=[(f"SHA-256 {name}", digest) for name, digest in certificate["tensors"].items()],
    )


def claim(certificate: Certificate) -> str:
    """Say whether every part of the theorem holds, and by how much."""
    failed = [name for name, holds in certificate["claims"].items() if not holds]
    if failed:
        return f"The certificate does not hold: {'; '.join(failed)}."
    return (
        f"On all {certificate['prefixes']:,} prefixes the valid next words have a probability of at least "
        f"{certificate['least_mass']:.4f}, as theorem {certificate['theorem']} demands."
    )


def claims_table(certificate: Certificate) -> Table:
    """Every part of the theorem, and whether it holds."""
    rows = [[name, "yes" if holds else "NO"] for name, holds in certificate["claims"].items()]
    note = f"Full forwards of a sample differ by at most {certificate['forward_difference']:.1g} in probability."
    return Table("certificate", ["claim", "holds"], rows, note, frozenset({"claim", "holds"}))


def sizes_table(certificate: Certificate) -> Table:
    """Every size and its bound."""
    part = "expert" if certificate["router"] else "circuit"
    counts = [("width", certificate["width"]), ("neurons in all", certificate["all_neurons"])]
    counts += [(f"{part} of {each['name']}", each) for each in certificate["neurons"]]
    rows = [[name, f"{each['value']:,}", f"{each['bound']:,}"] for name, each in counts]
    note = f"L = {certificate['L']}, N = {certificate['N']}, γ = {certificate['gamma']:.6g}."
    return Table("sizes", ["size", "value", "bound"], rows, note)


def neurons_panel(certificate: Certificate) -> Panel:
    """Draw the neurons of every expert or circuit beside their bound."""
    counts = certificate["neurons"]
    part = "expert" if certificate["router"] else "circuit"
    drawn = counts[:_DRAWN]
    figure, axes = canvas(0.95 + 0.34 * len(drawn))
    for y, each in enumerate(drawn):
        found, bound = ("neurons", "bound L|T(k)| + N") if y == 0 else (None, None)
        axes.plot([0, each["value"]], [y, y], color=ARMS[0], lw=6, solid_capstyle="butt", label=found)
        axes.plot([each["bound"]] * 2, [y - 0.3, y + 0.3], color=CONTROL, lw=2, label=bound)
    names = [each["name"] for each in drawn]
    row_labels(axes, names, dict.fromkeys(names, INK))
    legend(axes)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"neurons of each {part}")
    more = f" The first {_DRAWN} of {len(counts)}." if len(counts) > _DRAWN else ""
    data = csv_text(["task", "neurons", "bound"], ([each["name"], each["value"], each["bound"]] for each in counts))
    return Panel("neurons", f"Neurons of each {part} against the theorem's bound.{more}", figure, data)
