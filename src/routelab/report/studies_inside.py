"""The pages of studies of recurrent hosts and of the interference of two modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routelab.report.modes import cosine_panel, interference_table
from routelab.report.numbers import csv_text
from routelab.report.panel import Panel, canvas
from routelab.report.studies_parts import Found, Shown, percent
from routelab.report.tables import Table
from routelab.report.theme import ARMS, MUTED
from routelab.report.working_set_maps import maps_panel
from routelab.report.working_sets import convergence_panel, convergence_table, stability_panel


def convergence_shown(found: Found) -> Shown:
    """When supports, attention, states and outputs come to rest (arXiv 2609.27373, appendices B and C.1)."""
    default = found["settings"]["D"]
    claim = (
        f"Attention comes to rest before the states it builds in {default['positive']} of {default['n']} prompts, "
        f"{default['gap']:+.1f} steps apart on average.".replace("-", "−")
    )
    note = "The gap is the earlier rest of state and output minus the later rest of support and attention."
    settings = found["settings"]
    return Shown(claim, note, [convergence_panel(settings)], [convergence_table(settings)])


def working_set_shown(found: Found) -> Shown:
    """What a working set keeps, and how stable it is (arXiv 2609.27373, equations 23 to 25)."""
    kept, steady = found["coverage"]["wise"], found["stability"]
    depth = found["discovery_steps"]
    claim = (
        f"After step {depth} the working set is {percent(kept['density'], 0)} of the blocks and holds "
        f"{percent(kept['future_mass'])} of the attention to come."
    )
    rows = [
        [name.replace("_", " "), percent(each["density"]), percent(each["future_mass"])]
        for name, each in found["coverage"].items()
    ]
    audit = found["audit"]
    note = (
        f"{steady['n']} prompts. Jaccard of the working sets at steps {depth} and {found['num_steps']}: "
        f"{steady['endpoint']:.3f}. SizeMatched keeps as many blocks in {audit['equal']:,} of {audit['units']:,} units."
    )
    table = Table("supports after discovery", ["condition", "blocks kept", "attention kept"], rows, note)
    drawn = [stability_panel({"": steady["rolling"]}, depth)]
    if found.get("maps"):
        drawn.append(maps_panel(found["maps"], depth))
    return Shown(claim, "", drawn, [table])


def margins_shown(found: Found) -> Shown:
    """Theorem 6.1 of arXiv 2609.27373 on real trajectories, the last step standing in for the limit."""
    mean: Mapping[str, Any] = found["mean"]
    claim = (
        f"The mass contracts in {percent(mean['contracting'])} of the units; the bound of Theorem 6.1 is finite in "
        f"{percent(mean['bound_finite'])} and {_slack(mean['bound_slack_median'])} steps late in the median."
    )
    rows = [[_MEASURES[key], _number(key, mean[key])] for key in _MEASURES]
    note = (
        f"Means over {found['prompts']} prompts of {found['num_steps']} steps; medians are over the units of a prompt."
    )
    figure, axes = canvas(2.4)
    shown = ("contracting", "bound_finite", "bound_holds", "still_moving", "certified", "violation_rate")
    for x, key in enumerate(shown):
        dots = [100 * each[key] for each in found["each"] if each[key] is not None]
        axes.scatter([x] * len(dots), dots, s=18, color=ARMS[0], alpha=0.45, linewidths=0)
        if mean[key] is not None:
            axes.plot([x - 0.25, x + 0.25], [100 * mean[key]] * 2, color=ARMS[0], lw=2)
    axes.set_xticks(range(len(shown)), [key.replace("_", "\n") for key in shown])
    axes.set_ylim(-3, 103)
    axes.set_ylabel("units (%)", color=MUTED)
    axes.grid(axis="x", visible=False)
    data = csv_text(["prompt", *_MEASURES], ([i, *(e[k] for k in _MEASURES)] for i, e in enumerate(found["each"])))
    panel = Panel("margins", "Shares of units, one dot a prompt, the bar their mean.", figure, data)
    return Shown(claim, note, [panel], [Table("margins and contraction", ["measure", "mean"], rows)])


_MEASURES: Mapping[str, str] = {
    "margin_median": "margin Δ_q, median",
    "beta_median": "contraction β, median",
    "contracting": "units with β < 1",
    "observed_median": "step of stabilisation, median",
    "bound_finite": "units with a finite bound",
    "bound_holds": "units stable by their bound",
    "bound_slack_median": "bound minus observed step, median",
    "motion_median": "motion of the states after it, median",
    "still_moving": "units whose states move on by over 1 %",
    "certified": "units the margin rule calls settled",
    "violation_rate": "of those, units that changed after all",
}
_SHARES = frozenset(
    {"contracting", "bound_finite", "bound_holds", "motion_median", "still_moving", "certified", "violation_rate"}
)


def _number(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    return percent(value) if key in _SHARES else f"{value:.4g}"


def _slack(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def interference_shown(found: Found) -> Shown:
    """Whether think and no_think pull a dense host's MLPs apart (arXiv 2604.27201, appendix B)."""
    cosine = found["overall"]["cosine"]
    within = [value for value in found["overall"]["same_mode"].values() if value is not None]
    claim = (
        "One of the two modes gives the MLPs no gradient."
        if cosine is None
        else (
            f"The gradients of think and no_think have a cosine of {cosine:.2f}"
            + (f"; two samples of one mode have {min(within):.2f} to {max(within):.2f}." if within else ".")
        ).replace("-", "−")
    )
    counts = ", ".join(f"{number} {mode}" for mode, number in found["examples"].items())
    return Shown(claim, f"Examples: {counts}.", [cosine_panel(found)], [interference_table(found)])
