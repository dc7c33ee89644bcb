"""The pages of studies of recurrent hosts and of the interference of two modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routelab.report.figures import Panel, canvas
from routelab.report.modes import interference_table
from routelab.report.studies_parts import Found, Shown, csv_text, legend, percent
from routelab.report.tables import Table
from routelab.report.theme import ARMS, MUTED, RULE
from routelab.report.working_sets import QUANTITIES, convergence_table


def convergence_shown(found: Found) -> Shown:
    """When supports, attention, states and outputs come to rest (arXiv 2609.27373, appendices B and C.1)."""
    default = found["settings"]["D"]
    claim = (
        f"Attention comes to rest before the states it builds in {default['positive']} of {default['n']} prompts, "
        f"{default['gap']:+.1f} steps apart on average.".replace("-", "−")
    )
    figure, axes = canvas(2.6)
    for (name, label), colour in zip(QUANTITIES.items(), ARMS, strict=False):
        share = [100 * value for value in default[name]["converged"]]
        style = "-" if name in ("support", "attention") else "--"
        axes.plot(range(1, len(share) + 1), share, style, color=colour, lw=1.8, label=label)
    legend(axes)
    axes.set_xlabel("recurrent step")
    axes.set_ylabel("prompts at rest (%)", color=MUTED)
    rows = (
        [setting, name, step, share]
        for setting, each in found["settings"].items()
        for name in QUANTITIES
        for step, share in enumerate(each[name]["converged"], start=1)
    )
    data = csv_text(["criteria", "quantity", "step", "share at rest"], rows)
    caption = "What has come to rest by each step: where a model looks, and what it makes of it."
    note = "The gap is the earlier rest of state and output minus the later rest of support and attention."
    return Shown(claim, note, [Panel("convergence", caption, figure, data)], [convergence_table(found["settings"])])


def working_set_shown(found: Found) -> Shown:
    """What a working set keeps, and how stable it is (arXiv 2609.27373, equations 23 to 25)."""
    kept, steady = found["coverage"]["wise"], found["stability"]
    depth = found["discovery_steps"]
    claim = (
        f"After step {depth} the working set is {percent(kept['density'], 0)} of the blocks and holds "
        f"{percent(kept['future_mass'])} of the attention to come."
    )
    figure, axes = canvas(2.6)
    rolling = steady["rolling"]
    axes.plot(range(2, len(rolling) + 2), rolling, color=ARMS[0], lw=1.8)
    axes.axvline(depth, color=MUTED, lw=1, ls=(0, (4, 3)))
    axes.set_xlabel("recurrent step")
    axes.set_ylabel("Jaccard to the step before", color=MUTED)
    caption = "How much of the working set of one step is that of the next; the dashed line is where it is frozen."
    data = csv_text(["step", "jaccard"], ([step, value] for step, value in enumerate(rolling, start=2)))
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
    return Shown(claim, "", [Panel("working-set", caption, figure, data)], [table])


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
    data = csv_text(
        ["prompt", *_MEASURES], ([i, *(_blank(e[k]) for k in _MEASURES)] for i, e in enumerate(found["each"]))
    )
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


def _blank(value: float | None) -> float | str:
    return "" if value is None else value


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
    figure, axes = canvas(2.6)
    lines = {"no_think against think": ARMS[0], "within no_think": RULE, "within think": MUTED}
    for label, colour in lines.items():
        mode = label.removeprefix("within ")
        values = [(e["layer"], e["same_mode"].get(mode, e["cosine"])) for e in found["layers"]]
        known = [(layer, value) for layer, value in values if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "o-", color=colour, lw=1.6, ms=3.5, label=label)
    axes.axhline(0, color=MUTED, lw=0.8)
    legend(axes)
    axes.set_xlabel("layer")
    axes.set_ylabel("cosine of gradients", color=MUTED)
    rows = ([e["layer"], _blank(e["cosine"]), *(_blank(v) for v in e["same_mode"].values())] for e in found["layers"])
    data = csv_text(["layer", "cosine", *(f"within {mode}" for mode in found["overall"]["same_mode"])], rows)
    caption = "Cosine of the two modes' gradients by layer, beside that of two halves of one mode's examples."
    counts = ", ".join(f"{number} {mode}" for mode, number in found["examples"].items())
    return Shown(
        claim, f"Examples: {counts}.", [Panel("interference", caption, figure, data)], [interference_table(found)]
    )
